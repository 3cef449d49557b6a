package replay

import (
	"slices"

	"github.com/psyche-go/psyche/chain/layout"
)

// Resume returns a run in the state of its account, for a caller that trusts the account and wants
// to apply later instructions.
func Resume(program, address [32]byte, from *layout.Account) *Run {
	return &Run{
		State: from.State.Clone(), Main: from.Main, Sequence: from.Sequence, Head: from.Head,
		program: program, address: address, stage: slices.Clone(from.Stage),
	}
}
