package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server/status"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/journal"
)

const sampleState = "../../record/config/testdata/server.toml"

// administrator runs `psyche run` commands against one server.
type administrator struct {
	t       *testing.T
	dir     string
	address string
}

// administer starts a server and returns its administrator. The server gets the arguments args.
func administer(t *testing.T, args ...string) administrator {
	t.Helper()
	dir := t.TempDir()
	h := host(t, append([]string{"--save-state-dir", filepath.Join(dir, "state")}, args...)...)
	t.Cleanup(func() {
		h.stop()
		if code := <-h.code; code != exitOK {
			t.Errorf("the server ended with code %d", code)
		}
	})
	return administrator{t: t, dir: dir, address: h.address}
}

// path returns a path in the test's folder.
func (a administrator) path(name string) string { return filepath.Join(a.dir, name) }

// key creates a key file and returns its path.
func (a administrator) key(n byte) string {
	a.t.Helper()
	path := a.path(string('a'+rune(n)) + ".json")
	if _, err := os.Stat(path); err != nil {
		if err := identity.SaveKeyFile(path, identity.FromSeed([identity.SeedSize]byte{n})); err != nil {
			a.t.Fatal(err)
		}
	}
	return path
}

// command runs a command that talks to the server and returns its code and output.
func (a administrator) command(args ...string) (int, string) {
	a.t.Helper()
	args = append([]string{"run"}, args...)
	return a.plain(append(args, "--server-addr", a.address, "--known-servers", a.path("known"))...)
}

// plain runs a command.
func (a administrator) plain(args ...string) (int, string) {
	a.t.Helper()
	var out, errs strings.Builder
	code := run(a.t.Context(), args, console{&out, &errs})
	return code, out.String() + errs.String()
}

// does runs a command that must end with the exit code and pass [printed].
func (a administrator) does(want int, text string, args ...string) string {
	a.t.Helper()
	code, output := a.command(args...)
	if code != want {
		a.t.Fatalf("psyche run %s: exit code %d, want %d:\n%s", strings.Join(args, " "), code, want, output)
	}
	printed(a.t, code, text, output)
	return output
}

// differing matches text of messages that differs between runs: times, keys, signatures and hashes.
var differing = regexp.MustCompile(`\d\d:\d\d:\d\d\.\d{3}|\b[1-9A-HJ-NP-Za-km-z]{43,88}\b|\b[0-9a-f]{64}\b|(?s)\{\n.*\}`)

// printed checks the output of a command. If the command succeeds, its output must contain text. If it
// fails, text is the name of the golden message that its whole output must equal.
func printed(t *testing.T, code int, text, output string) {
	t.Helper()
	if code != exitOK {
		golden.Message(t, text, errors.New(differing.ReplaceAllString(strings.TrimSuffix(output, "\n"), "…")))
	} else if !strings.Contains(output, text) {
		t.Errorf("no %q in:\n%s", text, output)
	}
}

// status returns the status of a run.
func (a administrator) status(runID string) status.Run {
	a.t.Helper()
	_, output := a.command("status", "--run-id", runID, "--json")
	var r status.Run
	if err := json.Unmarshal([]byte(output), &r); err != nil {
		a.t.Fatalf("%v:\n%s", err, output)
	}
	return r
}

// keyNotice is part of the notice at the first connection to a server.
const keyNotice = " has the unknown key "

func TestRunCreateStatusExportReplay(t *testing.T) {
	a := administer(t, "--allow-create", identity.FromSeed([identity.SeedSize]byte{1}).ID().String())
	create := []string{"create", "--state", sampleState, "--run-id", "mine"}
	a.does(exitRefused, "key that may not create", append(create, "--keypair", a.key(2))...)
	output := a.does(exitOK, "run mine is on "+a.address, append(create, "--keypair", a.key(1))...)
	if strings.Contains(output, keyNotice) {
		t.Errorf("the server's key is shown again:\n%s", output)
	}
	a.does(exitRefused, "existing run", append(create, "--keypair", a.key(1))...)
	a.does(exitOK, "WaitingForMembers", "status", "--run-id", "mine")
	if r := a.status("mine"); r.RunID != "mine" || r.State != "WaitingForMembers" || r.StateHash == "" {
		t.Errorf("status %+v", r)
	}
	a.does(exitRefused, "other run", "status", "--run-id", "yours")
	a.does(exitOK, `"mine"  epoch 0  0 steps done  WaitingForMembers  0 clients  hash `, "list")
	if code, output := a.plain("run", "list", "--server-addr", a.address, "--rpc", "http://127.0.0.1:1"); code != exitUsage {
		t.Errorf("the runs of two hosts: exit code %d:\n%s", code, output)
	}

	log := a.path("mine.log")
	a.does(exitOK, "1 records of run mine", "export", "--run-id", "mine", "--output", log)
	a.does(exitFailed, "existing file", "export", "--run-id", "mine", "--output", log)
	code, output := a.plain("run", "replay", "--states", log)
	if code != exitOK || !strings.Contains(output, identity.FromSeed([identity.SeedSize]byte{1}).ID().String()) {
		t.Errorf("replay: exit code %d:\n%s", code, output)
	}
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(log, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, output = a.plain("run", "replay", log); code != exitUnverified || !strings.Contains(output, fmt.Sprint("entry 0 at offset ", len(journal.Magic))) {
		t.Errorf("replay of a damaged log: exit code %d:\n%s", code, output)
	}
}

func TestRunTrustsTheServerItSawFirst(t *testing.T) {
	a := administer(t, "--state", sampleState, "--run-id", "r")
	a.does(exitOK, "server "+a.address+keyNotice, "status", "--run-id", "r")
	known, err := os.ReadFile(a.path("known"))
	if err != nil {
		t.Fatal(err)
	}
	host := string(bytes.Fields(known)[1])
	a.does(exitOK, host, "status", "--run-id", "r", "--server-key", host)
	other := identity.FromSeed([identity.SeedSize]byte{9}).ID().String()
	a.does(exitConnection, "other key", "status", "--run-id", "r", "--server-key", other)
	if err := os.WriteFile(a.path("known"), []byte(a.address+" "+other+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.does(exitConnection, "changed key", "status", "--run-id", "r")
}

func TestRunNeedsAKeyToSign(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	a := administer(t, "--state", sampleState, "--run-id", "r")
	a.does(exitFailed, "no key", "set-paused", "--run-id", "r")
	t.Setenv(identity.SecretKeyVariable, strings.Repeat("07", 32))
	a.does(exitRefused, "fresh key", "set-paused", "--run-id", "r")
	a.does(exitOK, "pauses as soon as", "set-paused", "--run-id", "r", "--keypair", a.path("state/host-key.json"))
	if r := a.status("r"); r.State != "Paused" {
		t.Errorf("the run is in %s", r.State)
	}
}

// TestAuthorityKeyIsFound checks that a command signs with the key of the run's main authority if the key is in the folder of
// psyche host, and that it does not sign with another key there.
func TestAuthorityKeyIsFound(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	a := administer(t, "--state", sampleState, "--run-id", "r")
	put := func(from string, to ...string) {
		t.Helper()
		key, err := os.ReadFile(from)
		path := filepath.Join(append([]string{state, "psyche"}, to...)...)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700)); err == nil {
			err = os.WriteFile(path, key, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(a.key(5), "hosted", "other", "server", "host-key.json")
	if code, out := a.command("set-paused", "--run-id", "r"); code != exitFailed || !strings.Contains(out, "no signing key") {
		t.Errorf("another key: exit code %d:\n%s", code, out)
	}
	put(a.path("state/host-key.json"), "hosted", "mine", "server", "host-key.json")
	if code, out := a.command("set-paused", "--run-id", "r"); code != exitOK || !strings.Contains(out, "signing with "+state) {
		t.Errorf("the authority's key: exit code %d:\n%s", code, out)
	}
	if r := a.status("r"); r.State != "Paused" {
		t.Errorf("the run is in %s", r.State)
	}
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Chdir(a.dir)
	below := filepath.Join("state", "host-key.json")
	if code, out := a.command("set-paused", "false", "--run-id", "r"); code != exitOK || !strings.Contains(out, "signing with "+below) {
		t.Errorf("next to the server's folder: exit code %d:\n%s", code, out)
	}
}

// TestOtherAuthorityIsNotFound checks that a command does not find the key of an authority that is not the host: the server
// does not prove that it belongs to this authority.
func TestOtherAuthorityIsNotFound(t *testing.T) {
	a := administer(t, "--allow-create", "anyone")
	a.does(exitOK, "run p is on", "create", "--state", sampleState, "--run-id", "p", "--keypair", a.key(1))
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	key, err := os.ReadFile(a.key(1))
	if err == nil {
		err = os.WriteFile("host-key.json", key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if code, out := a.command("set-paused", "--run-id", "p"); code != exitFailed || !strings.Contains(out, "no signing key") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// TestStatusOfLink checks that psyche run status accepts the invite link of a run.
func TestStatusOfLink(t *testing.T) {
	a := administer(t, "--state", sampleState, "--run-id", "r")
	code, link := a.command("invite", "--run-id", "r")
	if code != exitOK {
		t.Fatal(link)
	}
	link = strings.Fields(link[strings.Index(link, "psyche://"):])[0]
	does := func(want int, text string, args ...string) {
		t.Helper()
		code, out := a.plain(append([]string{"run", "status", "--known-servers", a.path("known")}, args...)...)
		if code != want || !strings.Contains(out, text) {
			t.Errorf("%q: exit code %d, want %d and %q:\n%s", args, code, want, text, out)
		}
	}
	does(exitOK, "WaitingForMembers", link)
	does(exitOK, "WaitingForMembers", "'"+link+"'")
	does(exitUsage, "give its invite link")
	does(exitUsage, "not a link to a run", "friends")
	does(exitUsage, "omit --server-addr", link, "--server-addr", a.address)
	does(exitUsage, "not a link to a run", "psyche+solana://x")
}

// TestRunAdministration takes a permissioned run through its whole life cycle.
func TestRunAdministration(t *testing.T) {
	a := administer(t, "--allow-create", "anyone")
	main, join, grantee := a.key(1), a.key(2), a.key(3)
	id := func(n byte) string { return identity.FromSeed([identity.SeedSize]byte{n}).ID().String() }
	as := func(key string, args ...string) []string { return append(args, "--run-id", "p", "--keypair", key) }
	a.does(exitOK, "run p is on", as(main, "create", "--state", sampleState, "--permissioned", "--join-authority", id(2))...)
	if r := a.status("p"); r.Authority.Main != id(1) || r.Authority.Join != id(2) || !r.Authority.Permissioned {
		t.Fatalf("authority %+v", r.Authority)
	}
	a.does(exitRefused, "delegates before authorization", as(grantee, "set-delegates", id(4))...)
	a.does(exitRefused, "authorize as main authority", as(main, "authorize", id(3))...)
	a.does(exitOK, id(3)+" may join run p", as(join, "authorize", id(3))...)
	a.does(exitUsage, "zero key", as(join, "authorize", strings.Repeat("1", 32))...)
	a.does(exitOK, "1 delegate may join", as(grantee, "set-delegates", id(4))...)
	a.does(exitOK, id(3)+", delegates "+id(4), "status", "--run-id", "p")
	a.does(exitOK, "may no longer join", as(join, "authorize", "--revoke", id(3))...)

	a.does(exitRefused, "update of a running run", as(main, "update-config", "--state", sampleState)...)
	a.does(exitRefused, "pause as join authority", as(join, "set-paused")...)
	a.does(exitRefused, "close of a running run", as(main, "close")...)
	a.does(exitRefused, "resume of a running run", as(main, "set-paused", "false")...)
	a.does(exitOK, "pauses", as(main, "set-paused")...)
	content, err := os.ReadFile(sampleState)
	if err != nil {
		t.Fatal(err)
	}
	changed := a.path("changed.toml")
	if err := os.WriteFile(changed, bytes.Replace(content, []byte("cooldown_time = "), []byte("cooldown_time = 1"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	before := a.status("p").Config.CooldownTime
	a.does(exitOK, "now uses the configuration in", as(main, "update-config", "--state", changed)...)
	if after := a.status("p").Config.CooldownTime; after <= before {
		t.Errorf("cooldown_time is %v, was %v", after, before)
	}
	a.does(exitOK, "resumes", as(main, "set-paused", "false")...)
	a.does(exitRefused, "eject a stranger", as(main, "eject", id(4))...)
	a.does(exitOK, "pauses", as(main, "set-paused")...)
	a.does(exitOK, "is closed", as(main, "close")...)
	a.does(exitOK, "Finished, closed", "status", "--run-id", "p")
	a.does(exitRefused, "resume of a closed run", as(main, "set-paused", "false")...)
	log := a.path("p.log")
	a.does(exitOK, "verified", "export", "--run-id", "p", "--output", log)
	if code, output := a.plain("run", "replay", log); code != exitOK || !strings.Contains(output, "Finished, closed") {
		t.Errorf("replay: exit code %d:\n%s", code, output)
	}
}

// TestRunEjectAsksBeforeItStopsARun ejects a client from a run that has only as many clients as it
// needs.
func TestRunEjectAsksBeforeItStopsARun(t *testing.T) {
	const least = 3
	content, err := os.ReadFile(sampleState)
	if err != nil {
		t.Fatal(err)
	}
	content = bytes.Replace(content, []byte("init_min_clients = 1"), fmt.Appendf(nil, "init_min_clients = %d", least), 1)
	content = bytes.Replace(content, []byte("waiting_for_members_extra_time = 3"), []byte("waiting_for_members_extra_time = 100"), 1)
	state := filepath.Join(t.TempDir(), "state.toml")
	if err := os.WriteFile(state, content, 0o600); err != nil {
		t.Fatal(err)
	}
	a := administer(t, "--state", state, "--run-id", "r")
	a.does(exitOK, "WaitingForMembers", "status", "--run-id", "r")
	join := func(n byte) string {
		t.Helper()
		key := identity.FromSeed([identity.SeedSize]byte{n})
		c, err := tcp.Dial(t.Context(), tcp.Options{Addr: a.address, RunID: "r", Key: key})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.Submit(t.Context(), coordinator.Join{}); err != nil {
			t.Fatal(err)
		}
		return key.ID().String()
	}
	var ids []string
	for i := range least {
		ids = append(ids, join(byte(10+i)))
	}
	// A state is published a moment after its changes were acknowledged.
	clients := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; {
			if r := a.status("r"); len(r.Pending)+len(r.Members) == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("never %d clients", want)
			}
		}
	}
	clients(least)
	eject := []string{"eject", ids[0], "--run-id", "r", "--keypair", a.path("state/host-key.json")}
	a.does(exitFailed, "too few remain", eject...)
	clients(least)
	a.does(exitOK, "the run waits for more clients", append(eject, "--yes")...)
	clients(least - 1)
	a.does(exitRefused, "eject twice", eject...)
	ids = append(ids, join(100), join(101))
	clients(least + 1)
	eject[1] = ids[1]
	a.does(exitOK, "is ejected", eject...) // enough clients are left
}
