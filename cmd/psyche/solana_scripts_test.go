//go:build unix

package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// repository is the folder in which scripts run.
const repository = "../.."

// scriptedChain is a chain on loopback with one permissioned run, started by
// scripts/solana-localnet.sh.
type scriptedChain struct {
	t         *testing.T
	dir, rpc  string
	psyche    string
	authority string // key file of the join authority
}

// startScriptedChain starts the script.
func startScriptedChain(t *testing.T) *scriptedChain {
	t.Helper()
	if testing.Short() {
		t.Skip("waits for slots of a chain")
	}
	for _, program := range []string{"bash", "sh", "sed"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	n := &scriptedChain{t: t, dir: t.TempDir()}
	n.psyche = filepath.Join(n.dir, "psyche")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, n.psyche); err != nil { // TestMain runs the program under this name
		t.Fatal(err)
	}
	n.authority = n.key("join")
	ctx, stop := context.WithCancel(t.Context())
	script := exec.CommandContext(ctx, "scripts/solana-localnet.sh", "--join-authority", n.id(n.authority))
	script.Dir = repository
	script.Env = append(os.Environ(), "BIN="+n.dir, "DIR="+n.dir, "LISTEN=127.0.0.1:0", "SLOT_MS=20", "RUN_ID=light", "CONFIG_FILE=configs/smoke/state.toml")
	script.Cancel = func() error { return script.Process.Signal(os.Interrupt) }
	script.WaitDelay = 10 * time.Second
	var problems strings.Builder
	script.Stderr = &problems
	out, err := script.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = script.Wait() // it was interrupted
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, rest, found := strings.Cut(lines.Text(), "run light is on the chain at http://"); found {
			address, _, _ := strings.Cut(rest, ";")
			n.rpc = "http://" + address
			return n
		}
	}
	stop()
	_ = script.Wait()
	t.Fatalf("the script ended:\n%s", &problems)
	return nil
}

// call runs a program that must succeed and print a text.
func (n *scriptedChain) call(want, program string, args ...string) string {
	n.t.Helper()
	command := exec.CommandContext(n.t.Context(), program, args...)
	command.Dir = repository
	command.Env = append(os.Environ(), "PSYCHE="+n.psyche)
	out, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) {
		n.t.Fatalf("%s %v: %v, want %q:\n%s", program, args, err, want, out)
	}
	return string(out)
}

// key creates a key file.
func (n *scriptedChain) key(name string) string {
	n.t.Helper()
	path := filepath.Join(n.dir, name+".json")
	n.call("", n.psyche, "keys", "new", "--output", path)
	return path
}

// id returns the key of a file in base58.
func (n *scriptedChain) id(path string) string {
	n.t.Helper()
	return strings.TrimSpace(n.call("", n.psyche, "keys", "show", path))
}

// TestAuthorizationScripts checks that a join authority can authorize a key and that this key can
// name delegates, with the scripts that the documentation of the original Psyche uses.
func TestAuthorizationScripts(t *testing.T) {
	n := startScriptedChain(t)
	grantee, one, two := n.key("grantee"), n.key("delegate1"), n.key("delegate 2")
	for _, key := range []string{n.authority, grantee} {
		n.call("1 SOL", n.psyche, "chain", "airdrop", "1", key, "--rpc", n.rpc)
	}
	n.call("may join every run", "sh", "scripts/join-authorization-create.sh", n.rpc, n.authority, n.id(grantee))
	delegates := []string{"scripts/join-authorization-set-delegates.sh", n.rpc, n.id(n.authority), grantee}
	n.call("2 delegates may join every run", "sh", append(delegates, one, two)...)
	n.call("1 delegate may join every run", "sh", append(delegates, two)...)
	read := n.call("and 1 key on its behalf: "+n.id(two), n.psyche, "solana", "join-authorization-read",
		"--rpc", n.rpc, "--join-authority", n.id(n.authority), "--authorizer", n.id(grantee))
	if strings.Contains(read, n.id(one)) {
		t.Errorf("the first delegate still exists:\n%s", read)
	}
	n.call("0 delegates may join every run", "sh", delegates...)
}

func TestAuthorizationScriptsUsage(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip(err)
	}
	for _, line := range []string{
		"scripts/join-authorization-create.sh devnet key.json",
		"scripts/join-authorization-create.sh moon key.json k",
		"scripts/join-authorization-set-delegates.sh devnet k",
		"scripts/join-authorization-set-delegates.sh moon k key.json",
	} {
		command := exec.CommandContext(t.Context(), "sh", strings.Fields(line)...)
		command.Dir = repository
		out, err := command.CombinedOutput()
		if code := command.ProcessState.ExitCode(); code != 2 {
			t.Errorf("%s: exit code %d, %v\n%s", line, code, err, out)
		} else {
			printed(t, code, strings.TrimPrefix(line, "scripts/join-authorization-"), string(out))
		}
	}
	for name, want := range map[string]string{"devnet": "https://api.devnet.solana.com", "localnet": "http://127.0.0.1:8899", "http://h:1": "http://h:1"} {
		command := exec.CommandContext(t.Context(), "sh", "scripts/rpc-url.sh", name)
		command.Dir = repository
		if out, err := command.Output(); err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s is %s, %v", name, out, err)
		}
	}
}
