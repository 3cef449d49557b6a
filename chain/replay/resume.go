package replay

import (
	"slices"

	"github.com/psyche-go/psyche/chain/layout"
)

// Resume returns the run at an address as an account of it has it, for a caller that believes the account and
// wants to know what follows.
func Resume(program, address [32]byte, from *layout.Account) *Run {
	return &Run{
		State: from.State.Clone(), Main: from.Main, Sequence: from.Sequence, Head: from.Head,
		program: program, address: address, stage: slices.Clone(from.Stage),
	}
}
