package golden

import (
	"fmt"
	"os"
	"testing"
)

// failing is a test that records its error messages.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper()                      {}
func (f *failing) Errorf(s string, args ...any) { f.said += fmt.Sprintf(s, args...) }
func (f *failing) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }

func TestCompare(t *testing.T) {
	if *update {
		t.Skip("with -update the wrong text would be kept")
	}
	Compare(t, "kept.golden", "kept\n")
	Compare(t, "kept.golden", []byte("kept\n"))
	f := failing{TB: t}
	if Compare(&f, "kept.golden", "changed\n"); f.said == "" {
		t.Error("a different text equals the golden file")
	}
	defer func() {
		if recover() == nil {
			t.Error("a missing golden file is not an error")
		}
	}()
	Compare(&f, "missing.golden", "")
}

// TestUpdate checks that Compare writes the golden file if update is set.
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
