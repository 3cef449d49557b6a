package dir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/objstore"
	"github.com/psyche-go/psyche/objstore/storetest"
)

func open(t *testing.T, folder string) *Store {
	t.Helper()
	s, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objstore.Store { return open(t, t.TempDir()) })
}

func TestLinksDoNotLeadOut(t *testing.T) {
	outside, inside := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"file": filepath.Join(outside, "secret"), "folder": outside} {
		if err := os.Symlink(target, filepath.Join(inside, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, inside)
	for _, name := range []string{"file", "folder/secret"} {
		if o, err := s.Stat(t.Context(), name); err == nil {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if all, err := s.List(t.Context(), "", 10); err != nil || len(all) != 0 {
		t.Errorf("listed %+v, %v", all, err)
	}
}

func TestMissingFolder(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
