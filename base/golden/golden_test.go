package golden

import (
	"fmt"
	"os"
	"testing"
)

// failing is a test that notes what is said of it.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper()                      {}
func (f *failing) Errorf(s string, args ...any) { f.said += fmt.Sprintf(s, args...) }
func (f *failing) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }

func TestCompare(t *testing.T) {
	if *update {
		t.Skip("would keep what is wrong")
	}
	Compare(t, "kept.golden", "kept\n")
	Compare(t, "kept.golden", []byte("kept\n"))
	f := failing{TB: t}
	if Compare(&f, "kept.golden", "changed\n"); f.said == "" {
		t.Error("a different text equals the golden file")
	}
	defer func() {
		if recover() == nil {
			t.Error("a missing file passes")
		}
	}()
	Compare(&f, "missing.golden", "")
}

// TestUpdate writes a file and compares with it.
func TestUpdate(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	before := *update
	*update = true
	Compare(t, "new.golden", "first")
	*update = false
	Compare(t, "new.golden", "first")
	*update = before
}
