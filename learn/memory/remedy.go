package memory

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/psyche-go/psyche/base/diskspace"
)

// way is a change of flags that computes a micro batch in less memory.
type way struct {
	flags string
	total uint64 // memory that the training then needs, see Needs.Total
}

// ways lists the changes that need less memory than now, each alone, and all together. flag is the flag that sets the
// sequences of a micro batch; "" means --micro-batch-size.
func (t Training) ways(flag string) (all []way) {
	now, together := t.Needs().Total(), t
	var flags []string
	add := func(name string, change func(*Batch)) {
		changed := t
		change(&changed.Batch)
		if total := changed.Needs().Total(); total < now {
			all = append(all, way{name, total})
			change(&together.Batch)
			flags = append(flags, name)
		}
	}
	add(cmp.Or(flag, "--micro-batch-size")+" 1", func(b *Batch) { b.Sequences = min(b.Sequences, 1) })
	add("--recompute", func(b *Batch) { b.Recompute = true })
	add("--compute-dtype bf16", func(b *Batch) { b.TwoBytes = true })
	if total := together.Needs().Total(); len(flags) > 1 && total < now {
		all = append(all, way{strings.Join(flags, " "), total})
	}
	return all
}

// Remedy lists the flags that need less memory, with the memory that the training then needs. The list ends with a
// comma, and is empty if there are no such flags. flag is as in ways.
func (t Training) Remedy(flag string) string {
	text := ""
	for _, w := range t.ways(flag) {
		text += fmt.Sprintf("%s (then at least %s), ", w.flags, diskspace.Format(w.total))
	}
	return text
}

// Advice returns what to do after an allocation of the training failed: the flags with which it fits into has bytes of
// memory. If has is 0, the memory is unknown. flag is as in ways.
func (t Training) Advice(flag string, has uint64) string {
	needs, text := diskspace.Format(t.Needs().Total()), ""
	where := "memory"
	if t.Batch.Devices > 0 {
		where = "device memory"
	}
	if has > 0 {
		text = fmt.Sprintf("the training needs at least %s of the %s of %s", needs, diskspace.Format(has), where)
	} else {
		text = fmt.Sprintf("the training needs at least %s of %s", needs, where)
	}
	var fitting []string
	for _, w := range t.ways(flag) {
		if has == 0 || w.total <= has {
			fitting = append(fitting, fmt.Sprintf("%s (at least %s)", w.flags, diskspace.Format(w.total)))
		}
	}
	if len(fitting) == 0 {
		return text + "; no flag makes it fit: use a --device or a machine with more memory, or a smaller model"
	}
	return text + "; use less: " + strings.Join(fitting, ", or ")
}
