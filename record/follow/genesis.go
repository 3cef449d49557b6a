package follow

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// genesisDomain separates signatures of a Genesis from all others of the same key.
const genesisDomain = "psyche/genesis/v1"

// MaxGenesis bounds a Genesis in bytes: a first state is small, it has no members.
const MaxGenesis = 32 << 10

const (
	saltSize      = 32
	genesisPrefix = identity.IDSize + identity.SignatureSize + saltSize
)

// ErrGenesis says that bytes are not what a run begins with.
var ErrGenesis = errors.New("not the genesis of a run")

// Genesis is what a run begins with, signed by the client that began it.
type Genesis struct {
	Signer identity.ID
	Salt   [saltSize]byte // random: two runs have the same hash only if they are the same
	State  []byte         // canonical bytes of the first state; it names the host
	Raw    []byte         // exactly what was signed and sent
}

// SignGenesis returns the bytes of a genesis.
func SignGenesis(key identity.Key, salt [saltSize]byte, state []byte) []byte {
	body := append(salt[:], state...)
	signer, signature := key.ID(), key.Sign(genesisDomain, body)
	raw := append(signer[:], signature[:]...)
	return append(raw, body...)
}

// NewGenesis begins a run with a state in the name of a key.
func NewGenesis(key identity.Key, salt [saltSize]byte, state *coordinator.State) (Genesis, error) {
	return OpenGenesis(SignGenesis(key, salt, state.AppendTo(nil)))
}

// OpenGenesis verifies the signature and returns the parts, which alias raw. The state is not
// decoded. The error wraps ErrGenesis.
func OpenGenesis(raw []byte) (Genesis, error) {
	if len(raw) <= genesisPrefix || len(raw) > MaxGenesis {
		return Genesis{}, fmt.Errorf("%w: %d bytes, want more than %d and at most %d", ErrGenesis, len(raw), genesisPrefix, MaxGenesis)
	}
	g := Genesis{Signer: identity.ID(raw[:identity.IDSize]), State: raw[genesisPrefix:], Raw: raw}
	g.Salt = [saltSize]byte(raw[genesisPrefix-saltSize:])
	signature := [identity.SignatureSize]byte(raw[identity.IDSize:])
	if !identity.Verify(g.Signer, genesisDomain, raw[genesisPrefix-saltSize:], signature) {
		return Genesis{}, fmt.Errorf("%w: the signature of %s does not verify", ErrGenesis, g.Signer)
	}
	return g, nil
}

// Run returns the hash that names the run in everything that is signed.
func (g Genesis) Run() [32]byte { return wire.HostedRun(g.Raw) }

// First decodes the state, and verifies that it is one that a run may start with, and that its
// main authority signed it, or its host where the authority left it to that.
func (g Genesis) First() (coordinator.State, error) {
	state, err := coordinator.Decode(g.State)
	if err != nil {
		return state, fmt.Errorf("%w: its state: %w", ErrGenesis, err)
	}
	if main := identity.ID(state.Authority.Main); g.Signer != main && g.Signer != identity.ID(state.Host) {
		return state, fmt.Errorf("%w: signer %s is neither the main authority %s nor the host %s",
			ErrGenesis, g.Signer, main, identity.ID(state.Host))
	}
	if state.DrawCommitment == ([32]byte{}) {
		return state, fmt.Errorf("%w: no commitment to the random draws, so the host could choose them", ErrGenesis)
	}
	fresh, err := coordinator.Genesis{
		RunID: state.RunID, Host: state.Host, MainAuthority: state.Authority.Main, JoinAuthority: state.Authority.Join,
		Permissioned: state.Authority.Permissioned, Paused: state.RunState == coordinator.Paused,
		Config: state.Config, Model: state.Model, Draws: state.DrawCommitment,
		Progress: state.Progress, // it may continue an older run
	}.State()
	if err != nil {
		return state, fmt.Errorf("%w: %w", ErrGenesis, err)
	}
	if !bytes.Equal(fresh.AppendTo(nil), g.State) {
		return state, fmt.Errorf("%w: not the first state of a run", ErrGenesis)
	}
	return state, nil
}
