package follow

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// genesisDomain separates signatures of a Genesis from all other signatures of the same key.
const genesisDomain = "psyche/genesis/v1"

// MaxGenesis is the maximum size of a Genesis in bytes. A first state is small, because it has no
// members.
const MaxGenesis = 32 << 10

const (
	saltSize      = 32
	genesisPrefix = identity.IDSize + identity.SignatureSize + saltSize
)

// ErrGenesis means that bytes are not the genesis of a run.
var ErrGenesis = errors.New("not the genesis of a run")

// Genesis is the signed initial state of a run. The client that created the run signs it.
type Genesis struct {
	Signer identity.ID
	Salt   [saltSize]byte // random, so that different runs have different hashes
	State  []byte         // canonical bytes of the first state; it names the host
	Raw    []byte         // exactly the signed and sent bytes
}

// SignGenesis returns the bytes of a genesis, signed by key.
func SignGenesis(key identity.Key, salt [saltSize]byte, state []byte) []byte {
	body := append(salt[:], state...)
	signer, signature := key.ID(), key.Sign(genesisDomain, body)
	raw := append(signer[:], signature[:]...)
	return append(raw, body...)
}

// NewGenesis creates the genesis of a run with a first state, signed by key.
func NewGenesis(key identity.Key, salt [saltSize]byte, state *coordinator.State) (Genesis, error) {
	return OpenGenesis(SignGenesis(key, salt, state.AppendTo(nil)))
}

// OpenGenesis verifies the signature and returns the parts, which alias raw. It does not decode the
// state. The error wraps ErrGenesis.
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

// Run returns the hash that identifies the run in all signed messages.
func (g Genesis) Run() [32]byte { return wire.HostedRun(g.Raw) }

// First decodes the state. It verifies that a run may start with this state, and that its main
// authority signed it, or its host if the authority delegated that to the host.
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
		Progress: state.Progress, // the run may continue an older one
	}.State()
	if err != nil {
		return state, fmt.Errorf("%w: %w", ErrGenesis, err)
	}
	if !bytes.Equal(fresh.AppendTo(nil), g.State) {
		return state, fmt.Errorf("%w: not the first state of a run", ErrGenesis)
	}
	return state, nil
}
