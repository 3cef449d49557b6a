package auditor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

// TestPayloadsAreKeptWhateverTheyWeigh: what does not fit into memory lies on the disk until it is dropped.
func TestPayloadsAreKeptWhateverTheyWeigh(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "folder")
	d := newPayloadStore(parent, 100)
	hash := func(i int) [32]byte { return [32]byte{byte(i)} }
	data := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 40) }
	for i := range 10 {
		if err := d.Put(hash(i), data(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		if got, err := d.Get(hash(i)); err != nil || !bytes.Equal(got, data(i)) {
			t.Errorf("%d: %v, %v", i, got, err)
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
	if err := d.Put(hash(9), data(9)); err != nil { // of two rounds
		t.Fatal(err)
	}
	d.Drop(hash(9), hash(8), hash(0))
	if _, err := d.Get(hash(9)); err != nil {
		t.Errorf("the other round's is gone: %v", err)
	}
	if _, err := d.Get(hash(8)); !errors.Is(err, errNotKept) {
		t.Errorf("dropped: %v", err)
	}
	if n := files(); n != 7 {
		t.Errorf("%d files, want 7", n)
	}
	if err := d.Put(hash(20), data(20)); err != nil || files() != 7 {
		t.Errorf("there was room in memory: %v", err)
	}
	if err := d.Close(); err != nil || files() != 0 {
		t.Errorf("%d files are left: %v", files(), err)
	}
	left := newPayloadStore(parent, 0)
	if err := errors.Join(left.Put(hash(1), data(1)), sweep(parent)); err != nil || files() != 0 {
		t.Errorf("%d files of a killed process are left: %v", files(), err)
	}
	if _, err := left.Get(hash(1)); !errors.Is(err, errNotKept) {
		t.Errorf("its file is gone: %v", err)
	}
}

// TestOpeningsAreServed to whoever asks, so often, also of an earlier process.
func TestOpeningsAreServed(t *testing.T) {
	me, dir := identity.ID{7}, t.TempDir()
	own, others := resultID{coordinator.ClientID(me), 5}, resultID{coordinator.ClientID{8}, 5}
	ask := func(o *openings, k resultID, from identity.ID) ([]byte, error) {
		return o.answer(context.Background(), from, binary.LittleEndian.AppendUint32(k.Trainer[:], k.Step))
	}
	o := newOpenings(me, dir)
	if err := errors.Join(o.Keep(own, []byte("own"), time.Unix(0, 0)), o.Keep(others, []byte("others"), time.Unix(0, 0))); err != nil {
		t.Fatal(err)
	}
	for range maxAnswers {
		if got, err := ask(o, own, identity.ID{1}); err != nil || string(got) != "own" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if _, err := ask(o, own, identity.ID{1}); !errors.Is(err, errNotKept) {
		t.Errorf("asked too often: %v", err)
	}
	if got, err := ask(o, others, identity.ID{2}); err != nil || string(got) != "others" {
		t.Errorf("%q, %v", got, err)
	}
	o.Drop(others)
	if _, err := ask(o, others, identity.ID{2}); !errors.Is(err, errNotKept) {
		t.Errorf("dropped: %v", err)
	}
	if _, err := o.answer(context.Background(), identity.ID{1}, make([]byte, 4)); !errors.Is(err, errMalformed) {
		t.Errorf("half a request: %v", err)
	}
	again := newOpenings(me, dir)
	if got, err := ask(again, own, identity.ID{1}); err != nil || string(got) != "own" {
		t.Errorf("after a restart: %q, %v", got, err)
	}
	if err := os.Truncate(again.file(5), 33); err != nil {
		t.Fatal(err)
	}
	if got := newOpenings(me, dir).Get(own); got != nil {
		t.Errorf("a file that was written in part: %q", got)
	}
}

// TestOldOpeningsGo from memory, where they are on the disk, and from the disk when nobody may ask any
// more, also those of a process that was killed: but not what is needed.
func TestOldOpeningsGo(t *testing.T) {
	me, dir := identity.ID{7}, t.TempDir()
	of := func(step uint32) resultID { return resultID{coordinator.ClientID(me), step} }
	o, start := newOpenings(me, dir), time.Unix(1000, 0)
	for step := range uint32(10) {
		if err := o.Keep(of(step), []byte{byte(step)}, start); err != nil {
			t.Fatal(err)
		}
	}
	o.Prune(6+openRounds, 100, start)
	for step := range uint32(10) {
		if got := o.of[of(step)].bytes != nil; got != (step >= 6) {
			t.Errorf("step %d: in memory %v", step, got)
		}
		if got := o.Get(of(step)); len(got) != 1 || got[0] != byte(step) {
			t.Errorf("step %d: %v", step, got)
		}
	}
	written := time.Now()
	for step := range uint32(5) {
		if err := os.Chtimes(o.file(step), time.Time{}, written.Add(-openTime-time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	again := newOpenings(me, dir)
	again.Prune(10+openRounds, 3, start.Add(2*openTime))
	for step := range uint32(10) {
		if got := again.Get(of(step)) != nil; got != (step >= 3) {
			t.Errorf("step %d: kept %v", step, got)
		}
	}
	again.Prune(10+2*openRounds, 100, start.Add(2*openTime))
	for step := range uint32(10) {
		if got := again.Get(of(step)) != nil; got != (step >= 5) {
			t.Errorf("later, step %d: kept %v", step, got)
		}
	}
	without := newOpenings(me, "")
	_ = without.Keep(of(1), []byte{1}, start)
	without.Prune(100, 200, start.Add(openTime))
	if without.Get(of(1)) == nil {
		t.Error("what is in memory only went too early")
	}
	without.Prune(100, 200, start.Add(openTime+1))
	if without.Get(of(1)) != nil {
		t.Error("what is in memory only stays")
	}
}
