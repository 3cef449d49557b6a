package identity

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
)

// testSecret is the secret key of the first test vector of RFC 8032, section 7.1.
const testSecret = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"

func testKey(t *testing.T) Key {
	t.Helper()
	key, err := parseSecretHex(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestParseSecretHexMatchesRFC8032(t *testing.T) {
	id := testKey(t).ID()
	want := []byte{0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
		0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a}
	if !bytes.Equal(id[:], want) {
		t.Fatalf("public key %x, want %x", id, want)
	}
}

func TestKeyFileRoundTrip(t *testing.T) {
	key := testKey(t)
	for name, save := range map[string]func(string, Key) error{"json": SaveKeyFile, "raw": SaveRawKeyFile} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "id")
			if err := save(path, key); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Fatalf("mode %v, %v; want 0600", info.Mode(), err)
			}
			loaded, err := LoadKeyFile(path)
			if err != nil || loaded.ID() != key.ID() {
				t.Fatalf("loaded %v, %v; want %v", loaded.ID(), err, key.ID())
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			other := FromSeed([SeedSize]byte{1})
			if err := save(path, other); !errors.Is(err, ErrKeyFileExists) {
				t.Fatalf("second save: %v, want ErrKeyFileExists", err)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Fatalf("the file changed (%v)", err)
			}
			if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
				t.Fatalf("left behind: %v, %v", entries, err)
			}
		})
	}
}

func TestParseKeyFileRefuses(t *testing.T) {
	valid := string(testKey(t).appendJSON(nil))
	tests := []struct{ name, content string }{
		{"empty", ""},
		{"31 raw bytes", strings.Repeat("x", 31)},
		{"hex text", testSecret},
		{"63 numbers", "[" + strings.Repeat("1,", 62) + "1]"},
		{"not a byte", strings.Replace(valid, "157", "300", 1)},
		{"negative", strings.Replace(valid, "157", "-1", 1)},
		{"fraction", strings.Replace(valid, "157", "1.5", 1)},
		{"public half differs", strings.Replace(valid, ",215,", ",216,", 1)},
		{"trailing data", valid + "[]"},
		{"huge", strings.Repeat(" ", maxKeyFileSize+1)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := parseKeyFile([]byte(test.content))
			if !errors.Is(err, ErrInvalidKey) {
				t.Fatalf("error %v, want ErrInvalidKey", err)
			}
			golden.Message(t, "error", err)
		})
	}
}

func TestLoadKeyFileNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "absent.json")
	_, err := LoadKeyFile(path)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "psyche keys new") {
		t.Fatalf("error %v", err)
	}
}

func TestKeyFromEnvironment(t *testing.T) {
	environment := func(value string, set bool) func(string) (string, bool) {
		return func(name string) (string, bool) {
			if name != SecretKeyVariable {
				t.Errorf("looked up %s", name)
			}
			return value, set
		}
	}
	if _, set, err := KeyFromEnvironment(environment("", false)); set || err != nil {
		t.Fatalf("unset: %v, %v", set, err)
	}
	if key, set, err := KeyFromEnvironment(environment(testSecret, true)); !set || err != nil || key.ID() != testKey(t).ID() {
		t.Fatalf("set: %v, %v", set, err)
	}
	for _, around := range []string{testSecret + "\n", testSecret + "\r\n", "\ufeff" + testSecret, " " + testSecret + "\t\n"} { // such as a variable that was read from a file
		if key, set, err := KeyFromEnvironment(environment(around, true)); !set || err != nil || key.ID() != testKey(t).ID() {
			t.Errorf("%q around it: %v, %v", strings.ReplaceAll(around, testSecret, "…"), set, err)
		}
	}
	if _, set, err := KeyFromEnvironment(environment("\n", true)); !set || err == nil {
		t.Errorf("only a newline: %v, %v", set, err)
	}
	if key, err := parseKeyFile(append([]byte("\ufeff\n"), testKey(t).appendJSON(nil)...)); err != nil || key.ID() != testKey(t).ID() {
		t.Errorf("JSON with a byte order mark: %v", err)
	}
	_, set, err := KeyFromEnvironment(environment("9d61secret", true))
	if !set || !errors.Is(err, ErrInvalidKey) || !strings.Contains(err.Error(), SecretKeyVariable) {
		t.Fatalf("bad value: %v, %v", set, err)
	}
	if strings.Contains(err.Error(), "9d61") {
		t.Fatalf("the error repeats the secret: %v", err)
	}
}

func FuzzParseKeyFile(f *testing.F) {
	f.Add([]byte(strings.Repeat("k", SeedSize)))
	f.Add(FromSeed([SeedSize]byte{7}).appendJSON(nil))
	f.Add([]byte("[1,2"))
	fuzztest.Run(f, func(t *testing.T, content []byte) {
		key, err := parseKeyFile(content)
		if err != nil {
			return
		}
		again, err := parseKeyFile(key.appendJSON(nil))
		if err != nil || again.ID() != key.ID() {
			t.Fatalf("round trip: %v", err)
		}
	})
}

// TestKeyFileOfOthersIsRefused checks that a key file needs the same permissions as ssh requires.
func TestKeyFileOfOthersIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such bits")
	}
	path := filepath.Join(t.TempDir(), "key.json")
	if err := SaveKeyFile(path, testKey(t)); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []fs.FileMode{0o600, 0o400, 0o640, 0o604, 0o644, 0o620, 0o601} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := LoadKeyFile(path)
		if open := mode&0o077 != 0; errors.Is(err, ErrKeyFileOpen) != open || !open && err != nil {
			t.Errorf("mode %04o: %v", mode, err)
		}
		if err != nil {
			golden.Message(t, fmt.Sprintf("mode %04o", mode), err)
		}
	}
}
