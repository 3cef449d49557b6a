package wire

import (
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
)

// TestNamesThatMayNotBeShown signs names that our clients never send. It checks that a log may
// contain them, but that they are not displayed.
func TestNamesThatMayNotBeShown(t *testing.T) {
	for name, want := range map[string]string{
		"Ada": "Ada", "": "", "\x1b[2J": "", "\x00": "", "a\xff": "", "a\u202eb": "", " a": "", "a\u0301\u0301\u0301\u0301": "",
	} {
		opened, err := OpenAction(SignAction(testKey(), walk, 1, coordinator.Join{Name: name}), walk)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		join := opened.Action.(coordinator.Join)
		if join.Name != name || NameOf(join) != want {
			t.Errorf("%q: opened as %q, shown as %q, want %q", name, join.Name, NameOf(join), want)
		}
	}
}
