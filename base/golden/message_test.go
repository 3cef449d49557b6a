package golden

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestMessage checks that messages are written and compared, and that stale messages are removed.
func TestMessage(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	before := *update
	defer func() { *update = before }()
	*update = true
	first := errors.Join(errors.New("first"), &net.OpError{Op: "dial", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}, Err: errors.New("no")})
	Message(t, "a\nb", first)
	Message(t, "c", &os.PathError{Op: "open", Path: filepath.Join(dir, "x"), Err: os.ErrNotExist}, "open", "read")
	raw, err := os.ReadFile(filepath.Join("testdata", messagesFile))
	if err != nil {
		t.Fatal(err)
	}
	want := "TestMessage [a\\nb]\n\tfirst\n\tdial 127.0.0.1:PORT: no\nTestMessage [c]\n\tread TMP/x: file does not exist\n"
	if string(raw) != want {
		t.Errorf("file %q, want %q", raw, want)
	}
	*update = false
	Message(t, "a\nb", first)
	for name, err := range map[string]error{"a\nb": errors.New("other"), "c": nil, "d": first} {
		f := failing{TB: t}
		if Message(&f, name, err); f.said == "" {
			t.Errorf("%s: %v, want an error", name, err)
		}
	}
	*update = true
	clear(rewritten)
	Message(t, "e", first)
	if entries, err := readMessages(); err != nil || len(entries) != 1 {
		t.Errorf("%d entries, %v; want the stale ones removed", len(entries), err)
	}
}
