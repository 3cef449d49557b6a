package layout

import (
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

// genesisFixed is the number of bytes before the run id in a genesis.
const genesisFixed = 3*32 + 1 + 4 + 4 + 8 + 1

// AppendGenesis appends a genesis in the program's format, for the staging area.
func AppendGenesis(b []byte, g coordinator.Genesis) []byte {
	b = append(append(append(b, g.Host[:]...), g.MainAuthority[:]...), g.JoinAuthority[:]...)
	bits := byte(0)
	if g.Permissioned {
		bits |= 1
	}
	if g.Paused {
		bits |= 2
	}
	b = le.AppendUint32(append(b, bits), g.Progress.Epoch)
	b = le.AppendUint32(b, g.Progress.Step)
	b = le.AppendUint64(b, g.Progress.DataIndex)
	b = append(append(b, byte(len(g.RunID))), g.RunID...)
	u := coordinator.UpdateConfig{Config: g.Config, Model: g.Model}
	return u.AppendTo(b)
}

// ReadGenesis parses the output of AppendGenesis. Genesis.State validates it.
func ReadGenesis(b []byte) (coordinator.Genesis, error) {
	if len(b) < genesisFixed || len(b) > StageSize {
		return coordinator.Genesis{}, fmt.Errorf("genesis: %d bytes, want %d to %d", len(b), genesisFixed, StageSize)
	}
	g := coordinator.Genesis{
		Host: coordinator.ClientID(b), MainAuthority: coordinator.ClientID(b[32:]), JoinAuthority: coordinator.ClientID(b[64:]),
		Permissioned: b[96]&1 != 0, Paused: b[96]&2 != 0,
		Progress: coordinator.Progress{Epoch: le.Uint32(b[97:]), Step: le.Uint32(b[101:]), DataIndex: le.Uint64(b[105:])},
	}
	if b[96] > 3 {
		return coordinator.Genesis{}, fmt.Errorf("genesis: flags %d, at most 3 are known", b[96])
	}
	end := genesisFixed + int(b[113])
	if end > len(b) {
		return coordinator.Genesis{}, fmt.Errorf("genesis: ends within its run id of %d bytes", b[113])
	}
	g.RunID = string(b[genesisFixed:end])
	u, err := coordinator.DecodeUpdateConfig(b[end:])
	if err != nil {
		return coordinator.Genesis{}, fmt.Errorf("genesis: configuration: %w", err)
	}
	g.Config, g.Model = u.Config, u.Model
	return g, nil
}
