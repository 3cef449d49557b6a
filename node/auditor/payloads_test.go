package auditor

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

// TestLargePayloadsAreKeptOnTheDisk checks that payloads that do not fit in memory are on the
// disk until they are dropped.
func TestLargePayloadsAreKeptOnTheDisk(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "folder")
	d := newPayloadStore(parent, 100)
	hash := func(i int) [32]byte { return [32]byte{byte(i)} }
	data := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 40) }
	for i := range 10 {
		if err := d.put(hash(i), data(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		if got, err := d.Get(hash(i)); err != nil || !bytes.Equal(got, data(i)) {
			t.Errorf("%d: got %v, %v; want nil error and data(i)", i, got, err)
		}
	}
	files := func() int {
		found, err := filepath.Glob(filepath.Join(parent, payloadPattern, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	if n := files(); n != 8 {
		t.Errorf("%d files, want 8", n)
	}
	if err := d.put(hash(9), data(9)); err != nil { // used in two rounds
		t.Fatal(err)
	}
	d.drop(hash(9), hash(8), hash(0))
	if _, err := d.Get(hash(9)); err != nil {
		t.Errorf("the payload of the other round is missing: %v", err)
	}
	if _, err := d.Get(hash(8)); !errors.Is(err, errNotKept) {
		t.Errorf("dropped: %v", err)
	}
	if n := files(); n != 7 {
		t.Errorf("%d files, want 7", n)
	}
	if err := d.put(hash(20), data(20)); err != nil || files() != 7 {
		t.Errorf("there was room in memory: %v", err)
	}
	if err := d.Close(); err != nil || files() != 0 {
		t.Errorf("%d files are left: %v", files(), err)
	}
	left := newPayloadStore(parent, 0)
	if err := errors.Join(left.put(hash(1), data(1)), sweep(parent)); err != nil || files() != 0 {
		t.Errorf("%d files of a killed process are left: %v", files(), err)
	}
	if _, err := left.Get(hash(1)); !errors.Is(err, errNotKept) {
		t.Errorf("its file is missing: %v", err)
	}
}

// noTrial reports that no opening is on trial.
func noTrial(uint32) bool { return false }

// TestOldOpeningsGo checks that openings that are on the disk are removed from memory. They are
// removed from the disk when no member may request them any more, including openings of a killed
// process. An opening on trial is kept, but no later one.
func TestOldOpeningsGo(t *testing.T) {
	me, dir := identity.ID{7}, t.TempDir()
	of := func(step uint32) resultID { return resultID{coordinator.ClientID(me), step} }
	start := time.Unix(1000, 0)
	now := start
	clock := func() time.Time { return now }
	o := newOpenings(me, dir, clock)
	for step := range uint32(10) {
		if err := o.keep(of(step), [][]byte{{byte(step)}}); err != nil {
			t.Fatal(err)
		}
	}
	o.prune(6+openRounds, noTrial)
	for step := range uint32(10) {
		if got := o.of[of(step)].parts != nil; got != (step >= 6) {
			t.Errorf("step %d: in memory %v", step, got)
		}
		if got := o.parts(of(step)); len(got) != 1 || got[0][0] != byte(step) {
			t.Errorf("step %d: %v", step, got)
		}
	}
	written := time.Now()
	for step := range uint32(5) {
		if err := os.Chtimes(o.file(step), time.Time{}, written.Add(-openTime-time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	again := newOpenings(me, dir, clock)
	now = start.Add(2 * openTime)
	again.prune(10+openRounds, func(step uint32) bool { return step == 3 })
	for step := range uint32(10) {
		if got := again.parts(of(step)) != nil; got != (step == 3 || step >= 5) {
			t.Errorf("step %d: kept %v", step, got)
		}
	}
	again.prune(10+2*openRounds, noTrial)
	for step := range uint32(10) {
		if got := again.parts(of(step)) != nil; got != (step >= 5) {
			t.Errorf("later, step %d: kept %v", step, got)
		}
	}
	now = start
	without := newOpenings(me, "", clock)
	_ = without.keep(of(1), [][]byte{{1}})
	now = start.Add(openTime)
	without.prune(100, noTrial)
	if without.parts(of(1)) == nil {
		t.Error("a payload in memory was removed too early")
	}
	now = now.Add(1)
	without.prune(100, noTrial)
	if without.parts(of(1)) != nil {
		t.Error("a payload remains in memory")
	}
}
