package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/cmd/internal/modelsource"
	"github.com/psyche-go/psyche/record/invite"
)

func testLink() invite.Link {
	return invite.Link{Host: "127.0.0.1", Port: 1, RunID: "a run", Key: identity.FromSeed([32]byte{1}).ID(), Run: [32]byte{1}}
}

// TestJoinRefusesLinks checks that an invalid invite link is refused before anything is stored.
func TestJoinRefusesLinks(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(state, "psyche"))
	link := testLink().String()
	fail(t, exitUsage, "no link", "join")
	fail(t, exitUsage, "link that a shell cut", "join", strings.Split(link, "&")[0])
	fail(t, exitUsage, "no run id", "join", strings.Replace(link, "/a%20run", "/", 1))
	fail(t, exitUsage, "no micro batch", "join", link, "--micro-batch-size", "0")
	fail(t, exitUsage, "invisible character", "join", link, "--member-name", "a\u202eb")
	fail(t, exitUsage, "long name", "join", link, "--member-name", strings.Repeat("n", 33))
	fail(t, exitUsage, "flag of train", "join", link, "--run-id", "r")
	if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
		t.Errorf("kept %v, %v", left, err)
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "")
	fail(t, exitUsage, "no home", "join", link)
}

// TestJoinTakesFlagsOfTrain checks that join accepts the flags of train and their variables.
func TestJoinTakesFlagsOfTrain(t *testing.T) {
	t.Setenv("KEEP_STEPS", "7")
	all, err := parsed(t, "psyche-client", "join", testLink().ForShell(), "--device", "cpu", "-i", "key.json", "--checkpoint-dir", "saved", "--otlp-metrics-url", "http://h")
	c := all.Join
	if err != nil || c.KeepSteps != 7 || filepath.Base(c.IdentitySecretKeyPath) != "key.json" || filepath.Base(c.CheckpointDir) != "saved" || c.Ephemeral || c.Telemetry.OltpMetricsURL != "http://h" {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestZeroGenesis checks that a hash of zeros does not match every run.
func TestZeroGenesis(t *testing.T) {
	fail(t, exitUsage, "hash of zeros", "train", "--run-id", "r", "--server-addr", "127.0.0.1:1", "--genesis", strings.Repeat("0", 64))
}

func TestFolderOfARun(t *testing.T) {
	dir := kept("/state/psyche")
	if got := dir.run("../a run", [32]byte{0xab}); got != "/state/psyche/runs/..%2Fa+run-ab00000000000000" {
		t.Errorf("folder of a run: %s", got)
	}
}

// TestKeyIsKept checks that later starts use the key of the first start, and that only its owner
// can read the key.
func TestKeyIsKept(t *testing.T) {
	dir := kept(filepath.Join(t.TempDir(), "state", "psyche"))
	first, made, err := dir.key()
	if err != nil || !made {
		t.Fatal(made, err)
	}
	again, made, err := dir.key()
	if err != nil || made || again.ID() != first.ID() {
		t.Errorf("the second start: %s, made %v, %v; want %s", again.ID(), made, err, first.ID())
	}
	for path, want := range map[string]os.FileMode{string(dir): 0o700, dir.keyFile(): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v; want nil error and info.Mode().Perm() == want", path, info, err)
		}
	}
	if err := os.Chmod(dir.keyFile(), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := dir.key(); !errors.Is(err, identity.ErrKeyFileOpen) {
		t.Errorf("a key file that other users can read: %v", err)
	}
	write(t, dir.keyFile(), []byte("damaged"))
	if err := os.Chmod(dir.keyFile(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := dir.key(); !errors.Is(err, identity.ErrInvalidKey) {
		t.Errorf("a damaged key must be an error and must not be replaced: %v", err)
	}
}

// TestKeysByPrecedence checks that a key given by a flag has precedence over a key in the
// environment, which has precedence over the stored key.
func TestKeysByPrecedence(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	named := identity.FromSeed([32]byte{7})
	path := filepath.Join(dir, "named.json")
	if err := identity.SaveKeyFile(path, named); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	of := func(path string, keep bool) identity.ID {
		t.Helper()
		c := trainCommand{KeepIdentity: keep, memberFlags: memberFlags{IdentitySecretKeyPath: path}}
		key, err := c.key(logger)
		if err != nil {
			t.Fatal(err)
		}
		return key.ID()
	}
	if of(path, true) != named.ID() {
		t.Error("the key of --identity-secret-key-path has no precedence")
	}
	if _, err := os.Stat(filepath.Join(dir, "psyche")); err == nil {
		t.Error("a key was made although one is named")
	}
	first, fresh, other := of("", true), of("", false), of("", false)
	if first != of("", true) || first == fresh || fresh == other {
		t.Error("want the same key at each start with a kept key, and a new key without")
	}
	t.Setenv(identity.SecretKeyVariable, strings.Repeat("09", 32))
	if of("", true) != identity.FromSeed([32]byte([]byte(strings.Repeat("\x09", 32)))).ID() {
		t.Error("the key of the environment does not override the kept key")
	}
}

// TestNameIsKept checks that a start without --member-name uses the name of an earlier start with the same key, that a new name
// replaces it, and that a damaged file is an error.
func TestNameIsKept(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	logger := slog.New(slog.DiscardHandler)
	starts := func(given string, keep bool) (string, error) {
		c := trainCommand{KeepIdentity: keep, memberFlags: memberFlags{MemberName: given}}
		_, err := c.key(logger)
		return c.MemberName, err
	}
	for _, c := range []struct {
		given string
		keep  bool
		want  string
	}{{"", true, ""}, {"Ada", true, "Ada"}, {"", true, "Ada"}, {"", false, ""}, {"Eve", false, "Eve"}, {"Bob B", true, "Bob B"}, {"", true, "Bob B"}} {
		if got, err := starts(c.given, c.keep); err != nil || got != c.want {
			t.Errorf("%+v: got %q, %v; want nil error and %q", c, got, err, c.want)
		}
	}
	dir, err := stateFolder()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a\u202eb\n", strings.Repeat("n", 1000)} {
		write(t, dir.nameFile(), []byte(text))
		if name, err := starts("", true); err == nil || !strings.Contains(err.Error(), dir.nameFile()) {
			t.Errorf("%.40q: %q, %v", text, name, err)
		}
	}
}

// TestJoinTwice checks that the error of a user's second client in a run names the first client.
func TestJoinTwice(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	link := testLink()
	dir, err := runFolder(link.RunID, link.Run)
	if err != nil {
		t.Fatal(err)
	}
	first, err := filelock.OpenFolder(dir, 0o700)
	if err != nil || !filelock.Supported {
		t.Skip(err)
	}
	defer func() { _ = first.Close() }()
	fail(t, exitFailure, "second client", "join", link.String())
}

// TestErrorsAreShownPlainly checks that a run's definition cannot send control sequences to the
// terminal of a refused user.
func TestErrorsAreShownPlainly(t *testing.T) {
	var shown strings.Builder
	report(terminal{Err: &shown}, modelsource.Missing("\x1b]52;c;eA==\a", errors.New("there is none")), exitFailure)
	if strings.ContainsFunc(shown.String(), func(r rune) bool { return r < ' ' && r != '\n' }) {
		t.Errorf("%q", shown.String())
	}
}

// TestStateFolderIsForItsUser checks that only the user can read the folder in which join stores
// its files, whatever was there before.
func TestStateFolderIsForItsUser(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var out strings.Builder
	code := run(t.Context(), []string{"join", testLink().String(), "--server-timeout", "1ms"}, terminal{Out: &out, Err: &out})
	if code != exitConnection {
		t.Fatalf("exit %d: %s", code, out.String())
	}
	for _, path := range []string{"", "identity.json"} {
		info, err := os.Stat(filepath.Join(state, "psyche", path))
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q: got %v, %v; want nil error and info.Mode().Perm() & 0o077 == 0", path, info.Mode().Perm(), err)
		}
	}
}

// TestFirstStartsAtOnce checks that processes that start for the first time concurrently become the
// same member.
func TestFirstStartsAtOnce(t *testing.T) {
	dir := kept(filepath.Join(t.TempDir(), "psyche"))
	keys, made := make([]identity.Key, 16), make([]bool, 16)
	var starts sync.WaitGroup
	for i := range keys {
		starts.Go(func() {
			var err error
			if keys[i], made[i], err = dir.key(); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	count := 0
	for i := range keys {
		if keys[i].ID() != keys[0].ID() {
			t.Errorf("start %d has a different key", i)
		}
		if made[i] {
			count++
		}
	}
	if left, err := os.ReadDir(string(dir)); err != nil || len(left) != 1 || count != 1 {
		t.Errorf("made %d keys, left %v, %v", count, left, err)
	}
}

// TestJoinChain checks that an invite link to a run on a chain leads to the chain's nodes, and that
// an invalid link is refused.
func TestJoinChain(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", filepath.Join(t.TempDir(), "psyche"))
	link := invite.ChainLink{Program: identity.FromSeed([32]byte{1}).ID(), RunID: "r", Authority: identity.FromSeed([32]byte{2}).ID(), RPC: []string{"http://127.0.0.1:1"}}
	fail(t, exitUsage, "no nodes", "join", strings.Split(link.String(), "&")[0])
	fail(t, exitConnection, "no node answers", "join", link.String(), "--server-timeout", "1s", "--logs", "none")
}
