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

// ways lists the changes that need less memory than now: fewer sequences, each other flag alone, and one sequence with
// all these flags. flag is the flag that sets the sequences of a micro batch; "" means --micro-batch-size. has is the
// available memory. If has is 0, it is unknown, and the list has one sequence instead of a larger number that fits.
func (t Training) ways(flag string, has uint64) (all []way) {
	flag = cmp.Or(flag, "--micro-batch-size")
	now, together := t.Needs().Total(), t
	var names []string
	if t.Batch.Sequences > 1 {
		together.Batch.Sequences = 1
		names = append(names, flag+" 1")
	}
	add := func(name string, changed Training) bool {
		total := changed.Needs().Total()
		if total < now {
			all = append(all, way{name, total})
		}
		return total < now
	}
	fewer := t.fewer(has)
	add(fmt.Sprintf("%s %d", flag, fewer.Batch.Sequences), fewer)
	for _, other := range []struct {
		name   string
		change func(*Batch)
	}{
		{"--recompute", func(b *Batch) { b.Recompute = true }},
		{"--compute-dtype bf16", func(b *Batch) { b.TwoBytes = true }},
	} {
		changed := t
		other.change(&changed.Batch)
		if add(other.name, changed) {
			other.change(&together.Batch)
			names = append(names, other.name)
		}
	}
	if len(names) > 1 {
		add(strings.Join(names, " "), together)
	}
	return all
}

// fewer returns the training with at most half as many sequences in a micro batch, so that it fits into has bytes if
// possible. If has is 0, it has one sequence.
func (t Training) fewer(has uint64) Training {
	for t.Batch.Sequences > 1 {
		t.Batch.Sequences /= 2
		if has > 0 && t.Needs().Total() <= has {
			break
		}
	}
	return t
}

// Remedy lists the flags that need less memory, with the memory that the training then needs. The list ends with a
// comma, and is empty if there are no such flags. flag is as in ways.
func (t Training) Remedy(flag string) string {
	text := ""
	for _, w := range t.ways(flag, 0) {
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
	for _, w := range t.ways(flag, has) {
		if has == 0 || w.total <= has {
			fitting = append(fitting, fmt.Sprintf("%s (at least %s)", w.flags, diskspace.Format(w.total)))
		}
	}
	if len(fitting) == 0 {
		return text + "; no flag makes it fit: use a --device or a machine with more memory, or a smaller model"
	}
	return text + "; use less: " + strings.Join(fitting, ", or ")
}
