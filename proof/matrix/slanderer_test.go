package main

import (
	"os"
	"strings"
	"testing"
)

// TestSlandererOverlay changes the client's source into the source of a slanderer. It fails if the source no
// longer has the lines to change.
func TestSlandererOverlay(t *testing.T) {
	dir := t.TempDir()
	t.Chdir("../..")
	path, err := slandererOverlay(dir)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(overlay), hostFile) || !strings.Contains(string(overlay), slandererFile) {
		t.Errorf("the overlay is %s, %v", overlay, err)
	}
}

func TestPortOf(t *testing.T) {
	for service, want := range map[string]int{"http://127.0.0.1:81/": 81, "127.0.0.1:82": 82, "http://127.0.0.1:83": 83} {
		if port, err := portOf(service); err != nil || port != want {
			t.Errorf("the port of %q is %d, want %d: %v", service, port, want, err)
		}
	}
	for _, service := range []string{"", "127.0.0.1", "http://127.0.0.1:x"} {
		if _, err := portOf(service); err == nil {
			t.Errorf("%q has a port, want an error", service)
		}
	}
}
