package train

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

// TestFailedCommitChangesNothing checks steps of audited runs that fail after some tensors were
// encoded. The state keeps its bits, no earlier step can be opened or rolled back with overwritten
// values, and the next result is the result of a member that did not fail.
func TestFailedCommitChangesNothing(t *testing.T) {
	type member struct {
		encode  func(step uint32) ([]byte, error)
		values  *buffers
		history *history
		layouts []distro.Layout
		sent    func() int
	}
	header := func(step uint32) codec.Header {
		h := testHeader(step)
		h.Precision = audit.F32.Code()
		return h
	}
	kinds := map[string]func() member{
		"distro": func() member {
			o := newTestOptimizer(t, testDistro())
			if err := o.commit(); err != nil {
				t.Fatal(err)
			}
			encode := func(step uint32) ([]byte, error) {
				gradients := randomSlices(uint64(step), 0.01)
				return o.encode(header(step), vectors{here: gradients}, norm(gradients), 1e-2)
			}
			return member{encode, o.momentum.(*buffers), o.history, o.layouts, func() int { return len(o.sent) }}
		},
		"localsteps": func() member {
			r, err := newResidual(*toyLocalSteps(), testShapes, 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.commit(); err != nil {
				t.Fatal(err)
			}
			encode := func(step uint32) ([]byte, error) {
				far := randomSlices(uint64(step)+100, 0.01)
				if err := r.far(randomSlices(uint64(step), 0.01), far); err != nil {
					return nil, err
				}
				return r.encode(header(step), vectors{here: far}, 1e-2)
			}
			return member{encode, r.unsent.(*buffers), r.history, r.layouts, func() int { return len(r.sent) }}
		},
	}
	for name, create := range kinds {
		for _, fails := range []uint32{1, 2, 3, 4} {
			failing, twin := create(), create()
			for step := uint32(1); step <= 5; step++ {
				if step == fails {
					last := failing.layouts[2]
					failing.layouts[2] = distro.Layout{} // fails after two tensors
					before := copySlices(failing.values.now)
					_, err := failing.encode(step)
					failing.layouts[2] = last
					if err == nil || !sameBits(before, failing.values.now) || failing.sent() != int(step)-1 {
						t.Errorf("%s, step %d: error %v, or the state has changed", name, step, err)
					}
					if _, err := failing.history.show(step-1, [32]byte{}, []uint32{0}); !errors.Is(err, errStep) {
						t.Errorf("%s, step %d: the step before was opened: %v", name, step, err)
					}
					if _, err := failing.history.rollback(step - 1); step > 1 && !errors.Is(err, errStep) {
						t.Errorf("%s, step %d: the step before was rolled back: %v", name, step, err)
					}
				}
				got, err := failing.encode(step)
				want, failed := twin.encode(step)
				if err != nil || failed != nil || !slices.Equal(got, want) || !sameBits(failing.values.now, twin.values.now) {
					t.Fatalf("%s, step %d after a failed step %d: another result: %v, %v", name, step, fails, err, failed)
				}
				chunks := []uint32{0, 1}
				mine, err := failing.history.show(step, [32]byte{}, chunks)
				theirs, failed := twin.history.show(step, [32]byte{}, chunks)
				if err != nil || failed != nil || !reflect.DeepEqual(mine, theirs) {
					t.Errorf("%s, step %d after a failed step %d: another opening: %v, %v", name, step, fails, err, failed)
				}
			}
			if norm(failing.values.now) == 0 || math.IsNaN(norm(failing.values.now)) {
				t.Errorf("%s: nothing was tested", name)
			}
		}
	}
}
