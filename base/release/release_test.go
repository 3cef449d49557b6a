package release

import (
	"errors"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
)

func TestAdmit(t *testing.T) {
	for _, c := range []struct {
		required, own string
		admitted      bool
	}{
		{"", "0.1.0", true},
		{"0.2.0", "", true},
		{"0.2.0", "0.1.9", false},
		{"0.2.0", "0.2.0", true},
		{"0.2.0", "0.10.0", true},
		{"0.10.0", "0.9.9", false},
		{"0.2.0", "1.0.0", true},
		{"0.2.0", "0.2.0-rc.1", false},
		{"0.2.0-rc.1", "0.2.0-rc.2", true},
		{"0.2.0-rc.10", "0.2.0-rc.9", false},
		{"0.2.0", "0.2.0-dev", true},
		{"0.2.1", "0.2.0-dev", false},
		{"0.2.0-rc.2", "0.2.0-rc.1-dev", false},
		{"0.2.0", "unknown", false},
	} {
		if err := (Requirement{Version: c.required}).Admit(c.own); (err == nil) != c.admitted || err != nil && !errors.Is(err, ErrOutdated) {
			t.Errorf("required %q, version %q: %v", c.required, c.own, err)
		}
	}
}

func TestMessages(t *testing.T) {
	golden.Message(t, "old version", Requirement{Version: "0.2.0"}.Admit("0.1.0"))
	golden.Message(t, "old version, address", Requirement{Version: "0.2.0", Address: "https://example.com/psyche/"}.Admit("0.1.0"))
	golden.Message(t, "no version", Requirement{Version: "new"}.Check())
	golden.Message(t, "no address", checkAddress("https://example.com/a b"))
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		version, address string
		want             error
	}{
		{"", "", nil},
		{"0.2.0", "", nil},
		{"10.20.30-rc.1", "http://127.0.0.1:8000/releases", nil},
		{"v0.2.0", "", ErrVersion},
		{"0.2", "", ErrVersion},
		{"0.2.0+build", "", ErrVersion},
		{"00.2.0", "", ErrVersion},
		{"0.2.0\n", "", ErrVersion},
		{"0.2.0-" + strings.Repeat("x", MaxVersion-5), "", ErrVersion},
		{"0.2.0", "example.com", ErrAddress},
		{"0.2.0", "https://", ErrAddress},
		{"0.2.0", "ftp://example.com", ErrAddress},
		{"0.2.0", "https://example.com/$(id)", ErrAddress},
		{"0.2.0", "https://example.com/a;b", ErrAddress},
		{"0.2.0", "https://example.com/\n", ErrAddress},
		{"0.2.0", "https://" + strings.Repeat("x", MaxAddress-7), ErrAddress},
	} {
		if err := (Requirement{Version: c.version, Address: c.address}).Check(); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%q, %q: %v, want %v", c.version, c.address, err, c.want)
		}
	}
}
