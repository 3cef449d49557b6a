package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/psyche-go/psyche/files/objstore"
)

// Run tests an implementation. open returns an empty store that lives as long as the test.
func Run(t *testing.T, open func(t *testing.T) objstore.Store) {
	for name, test := range map[string]func(*testing.T, objstore.Store){
		"PutAndRead":       putAndRead,
		"List":             list,
		"Missing":          missing,
		"OldVersions":      oldVersions,
		"Conditions":       conditions,
		"OneWriterWins":    oneWriterWins,
		"WrongSize":        wrongSize,
		"Names":            names,
		"Cancelled":        cancelled,
		"ReadOutsideBytes": readOutside,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func put(t *testing.T, s objstore.Store, name, content string, when objstore.Condition) objstore.Object {
	t.Helper()
	o, err := s.Put(t.Context(), name, strings.NewReader(content), int64(len(content)), when)
	if err != nil {
		t.Fatal(err)
	}
	if o.Name != name || o.Size != int64(len(content)) || o.Generation == "" {
		t.Fatalf("wrote %+v", o)
	}
	return o
}

func content(t *testing.T, s objstore.Store, o objstore.Object) string {
	t.Helper()
	r, err := s.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func putAndRead(t *testing.T, s objstore.Store) {
	large := strings.Repeat("0123456789abcdef", 1<<16)
	for name, want := range map[string]string{"empty": "", "a/b/c.bin": "hello", "ü ?#%+&=.txt": "names", "large": large} {
		o := put(t, s, name, want, objstore.Condition{})
		if got := content(t, s, o); got != want {
			t.Errorf("%s: got %d bytes, want %d", name, len(got), len(want))
		}
		if now, err := s.Stat(t.Context(), name); err != nil || now != o {
			t.Errorf("%s: Stat gives %+v, %v, want %+v", name, now, err, o)
		}
		middle := len(want) / 2
		buffer := make([]byte, min(7, len(want)-middle))
		if err := s.ReadAt(t.Context(), o, buffer, int64(middle)); err != nil || string(buffer) != want[middle:middle+len(buffer)] {
			t.Errorf("%s: ReadAt gives %q, %v", name, buffer, err)
		}
	}
}

func list(t *testing.T, s objstore.Store) {
	var want []objstore.Object
	for _, name := range []string{"b/2", "b/10", "b/sub/1", "bc", "a"} {
		want = append(want, put(t, s, name, name, objstore.Condition{}))
	}
	slices.SortFunc(want, func(a, b objstore.Object) int { return strings.Compare(a.Name, b.Name) })
	for prefix, part := range map[string][]objstore.Object{
		"": want, "b": want[1:], "b/": want[1:4], "b/1": want[1:2], "b/sub/": want[3:4], "x": nil, "b/x/y": nil,
	} {
		got, err := s.List(t.Context(), prefix, 5)
		if err != nil || !slices.Equal(got, part) {
			t.Errorf("below %q: %+v, %v, want %+v", prefix, got, err, part)
		}
	}
	if _, err := s.List(t.Context(), "b", 3); !errors.Is(err, objstore.ErrTooMany) {
		t.Errorf("more than the limit: %v", err)
	}
}

func missing(t *testing.T, s objstore.Store) {
	if _, err := s.Stat(t.Context(), "no/such"); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("Stat: %v", err)
	}
}

func oldVersions(t *testing.T, s objstore.Store) {
	old := put(t, s, "a", "old", objstore.Condition{})
	now := put(t, s, "a", "new", objstore.Condition{})
	if old.Generation == now.Generation {
		t.Error("two versions have the same generation")
	}
	if err := s.ReadAt(t.Context(), old, make([]byte, 3), 0); !errors.Is(err, objstore.ErrChanged) {
		t.Errorf("ReadAt of the old version: %v", err)
	}
	r, err := s.Open(t.Context(), old)
	if err == nil {
		_, err = io.ReadAll(r)
		_ = r.Close()
	}
	if !errors.Is(err, objstore.ErrChanged) {
		t.Errorf("Open of the old version: %v", err)
	}
	if got := content(t, s, now); got != "new" {
		t.Errorf("got %q", got)
	}
}

func conditions(t *testing.T, s objstore.Store) {
	try := func(when objstore.Condition) error {
		_, err := s.Put(t.Context(), "a", strings.NewReader("bad"), 3, when)
		return err
	}
	first := put(t, s, "a", "1", objstore.IfAbsent())
	if err := try(objstore.IfAbsent()); !errors.Is(err, objstore.ErrPrecondition) {
		t.Errorf("IfAbsent of an existing object: %v", err)
	}
	second := put(t, s, "a", "22", objstore.IfStill(first))
	if err := try(objstore.IfStill(first)); !errors.Is(err, objstore.ErrPrecondition) {
		t.Errorf("IfStill of an old version: %v", err)
	}
	if got := content(t, s, second); got != "22" {
		t.Errorf("a refused Put changed the object to %q", got)
	}
	if all, err := s.List(t.Context(), "", 10); err != nil || len(all) != 1 {
		t.Errorf("a refused Put left something: %+v, %v", all, err)
	}
	if _, err := s.Put(t.Context(), "b", strings.NewReader("bad"), 3, objstore.IfStill(second)); !errors.Is(err, objstore.ErrPrecondition) {
		t.Errorf("IfStill of a missing object: %v", err)
	}
}

func oneWriterWins(t *testing.T, s objstore.Store) {
	base := put(t, s, "a", "base", objstore.Condition{})
	for name, when := range map[string]objstore.Condition{"fresh": objstore.IfAbsent(), "a": objstore.IfStill(base)} {
		var won atomic.Int32
		var writers sync.WaitGroup
		for i := range 8 {
			writers.Go(func() {
				_, err := s.Put(t.Context(), name, bytes.NewReader([]byte{byte(i)}), 1, when)
				switch {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, objstore.ErrPrecondition):
					t.Error(err)
				}
			})
		}
		writers.Wait()
		if won.Load() != 1 {
			t.Errorf("%s: %d writers won", name, won.Load())
		}
	}
}

func wrongSize(t *testing.T, s objstore.Store) {
	for _, text := range []string{"", "12", "1234"} {
		if _, err := s.Put(t.Context(), "a", strings.NewReader(text), 3, objstore.Condition{}); err == nil {
			t.Errorf("%d bytes were accepted as 3", len(text))
		}
	}
	if all, err := s.List(t.Context(), "", 10); err != nil || len(all) != 0 {
		t.Errorf("a failed Put left something: %+v, %v", all, err)
	}
}

func names(t *testing.T, s objstore.Store) {
	for _, name := range []string{"", "/a", "a/", "a//b", ".", "..", "../a", "a/../../b", `a\b`, "a\nb", "a\x00", "\xff", strings.Repeat("x", objstore.MaxName+1)} {
		if _, err := s.Put(t.Context(), name, strings.NewReader("1"), 1, objstore.Condition{}); !errors.Is(err, objstore.ErrName) {
			t.Errorf("Put %q: %v", name, err)
		}
		if _, err := s.Stat(t.Context(), name); !errors.Is(err, objstore.ErrName) {
			t.Errorf("Stat %q: %v", name, err)
		}
	}
}

func cancelled(t *testing.T, s objstore.Store) {
	o := put(t, s, "a", "1", objstore.Condition{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.List(ctx, "", 10); !errors.Is(err, context.Canceled) {
		t.Errorf("List: %v", err)
	}
	if err := s.ReadAt(ctx, o, make([]byte, 1), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("ReadAt: %v", err)
	}
	if _, err := s.Put(ctx, "b", strings.NewReader("1"), 1, objstore.Condition{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Put: %v", err)
	}
	if all, err := s.List(t.Context(), "", 10); err != nil || len(all) != 1 {
		t.Errorf("a cancelled Put left something: %+v, %v", all, err)
	}
}

func readOutside(t *testing.T, s objstore.Store) {
	o := put(t, s, "a", "0123", objstore.Condition{})
	for _, at := range []struct{ offset, n int64 }{{-1, 1}, {0, 5}, {4, 1}, {1 << 62, 4}} {
		if err := s.ReadAt(t.Context(), o, make([]byte, at.n), at.offset); err == nil {
			t.Errorf("%d bytes at %d were read", at.n, at.offset)
		}
	}
}
