//go:build unix

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/base/signals/signalstest"
)

// signalled is a row of TestSignals: a command that gets signals.
type signalled struct {
	command string // as in the command table
	rest    string // arguments, with the names of signalledWorld
	until   string // text that the command prints when it is working; empty: a second after its start
	code    int
	prints  string
}

// brief lists the commands that end by themselves within a second, whatever other machines do.
var brief = []string{
	"data inspect", // reads the lines that describe a folder, and its files unless --quick
	"keys new", "doctor", "version", "completion", "print-man", "print-all-help",
	"testnet print-all-help", "server print-all-help", "solana print-all-help",
	"solana train", // becomes psyche-client
}

// signalledCommands lists every command that may take longer. SILENT is a server that never
// answers, and PIPE is a file that blocks its reader.
var signalledCommands = []signalled{
	{"host", "--tokenizer PIPES --client KEY --dir out STATE", "", signals.Interrupted, ""},
	{"testnet start", "--config-path PIPES", "", signals.Interrupted, ""},
	{"server run", "--state STATE --server-port 0 --save-state-dir .", "listening", 0, ""},
	{"server validate-config", "--state PIPE", "", signals.Interrupted, ""},
	{"server repair", "--save-state-dir PIPES --run-id r", "", signals.Interrupted, ""},
	{"run create", "--state STATE --keypair KEY --server-addr SILENT --timeout 1h", "", signals.Interrupted, ""},
	{"run invite", "--run-id r --server-addr SILENT --timeout 1h", "", signals.Interrupted, ""},
	{"run status", "--run-id r --server-addr SILENT --timeout 1h", "", signals.Interrupted, ": interrupted\n"},
	{"run list", "--server-addr SILENT --timeout 1h", "", signals.Interrupted, ""},
	{"run set-paused", "--run-id r true --keypair KEY --server-addr SILENT --timeout 1h", "", signals.Interrupted, ""},
	{"run update-config", "--run-id r --state STATE --keypair KEY --server-addr SILENT --timeout 1h", "", signals.Interrupted, ""},
	{"run authorize", "--run-id r ID --keypair KEY --server-addr SILENT --timeout 1h", "", signals.Interrupted, ""},
	{"run set-delegates", "--run-id r ID --keypair KEY --server-addr SILENT --timeout 1h", "", signals.Interrupted, ""},
	{"run eject", "--run-id r ID --keypair KEY --server-addr SILENT --timeout 1h", "", signals.Interrupted, ""},
	{"run close", "--run-id r --keypair KEY --server-addr SILENT --timeout 1h", "", signals.Interrupted, ""},
	{"run tick", "--run-id r --keypair KEY --rpc http://SILENT", "", signals.Interrupted, ""},
	{"run free", "--run-id r --keypair KEY --rpc http://SILENT", "", signals.Interrupted, ""},
	{"run archive", "--run-id r --output archive --rpc http://SILENT", "", signals.Interrupted, ""},
	{"run export", "--run-id r --output log --server-addr SILENT --timeout 1h", "", signals.Interrupted, ""},
	{"run replay", "PIPE", "", signals.Interrupted, ""},
	{"run receipt", "PIPE --member ID --output receipt", "", signals.Interrupted, ""},
	{"run examine", "PIPE --entry 1", "", signals.Interrupted, ""},
	{"data tokenize", "--tokenizer PIPES --output out STATE", "", signals.Interrupted, ""},
	{"data samples", "--tokenizer PIPES --seq-len 64 --output out STATE", "", signals.Interrupted, ""},
	{"data serve", "--data-config PIPE --run-id r --server-addr SILENT --listen-addr 127.0.0.1:0", "", signals.Interrupted, ""},
	{"chain start", "--listen 127.0.0.1:0", "JSON-RPC", 0, ""},
	{"chain deploy", "--keypair KEY --rpc http://SILENT", "", signals.Interrupted, ""},
	{"chain airdrop", "1 ID --rpc http://SILENT", "", signals.Interrupted, ""},
	{"chain balance", "ID --rpc http://SILENT", "", signals.Interrupted, ""},
	{"solana create-run", "--state STATE --keypair KEY --rpc http://SILENT", "", signals.Interrupted, ""},
	{"solana update-config", "--state STATE --run-id r --keypair KEY --rpc http://SILENT", "", signals.Interrupted, ""},
	{"solana set-paused", "--run-id r true --keypair KEY --rpc http://SILENT", "", signals.Interrupted, ""},
	{"solana close-run", "--run-id r --keypair KEY --rpc http://SILENT", "", signals.Interrupted, ""},
	{"solana tick", "--run-id r --keypair KEY --rpc http://SILENT", "", signals.Interrupted, ""},
	{"solana json-dump-run", "--run-id r --rpc http://SILENT", "", signals.Interrupted, ""},
	{"solana list-runs", "--rpc http://SILENT", "", signals.Interrupted, ""},
	{"solana join-authorization-create", "--run-id r --authorizer ID --keypair KEY --rpc http://SILENT", "", signals.Interrupted, ""},
	{"solana join-authorization-read", "--run-id r --authorizer ID --rpc http://SILENT", "", signals.Interrupted, ""},
	{"solana join-authorization-delegate", "--run-id r --keypair KEY --rpc http://SILENT", "", signals.Interrupted, ""},
	{"solana join-authorization-delete", "--run-id r --authorizer ID --keypair KEY --rpc http://SILENT", "", signals.Interrupted, ""},
	{"keys show", "PIPE", "", signals.Interrupted, ""},
	{"dash", "--http-addr 127.0.0.1:0 .", "the page is at", 0, ""},
	{"sim", "--seeds 1..1000000", "", signals.Interrupted, "seeds/s; 0 violations\npsyche: interrupted\n"},
}

// TestSignalsOfAllCommands checks that each command of the program is in signalledCommands or in
// brief.
func TestSignalsOfAllCommands(t *testing.T) {
	parser, err := newParser(t.Context(), &commands{}, console{io.Discard, io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	known := slices.Clone(brief)
	for _, c := range signalledCommands {
		known = append(known, c.command)
	}
	slices.Sort(known)
	var all []string
	for _, leaf := range parser.Model.Leaves(false) {
		var names []string
		for node := leaf; node.Type == kong.CommandNode; node = node.Parent {
			names = append([]string{node.Name}, names...)
		}
		all = append(all, strings.Join(names, " "))
	}
	slices.Sort(all)
	for _, name := range all {
		if !slices.Contains(known, name) {
			t.Errorf("%s: no signal is sent to this command; add it to signalledCommands", name)
		}
	}
	for _, name := range known {
		if !slices.Contains(all, name) {
			t.Errorf("%s: no such command", name)
		}
	}
}

// signalledWorld returns the replacements of the names in command lines.
func signalledWorld(t *testing.T) *strings.Replacer {
	t.Helper()
	state, err := filepath.Abs("../../configs/smoke/state.toml")
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	dir := t.TempDir()
	pipe, pipes, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "pipes"), filepath.Join(dir, "key.json")
	if err := os.Mkdir(pipes, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, filepath.Join(pipes, "state.toml"), filepath.Join(pipes, "tokenizer.json"), filepath.Join(pipes, "r.journal")} {
		if err := syscall.Mkfifo(path, 0o600); err != nil { // opening it blocks until a writer opens it
			t.Fatal(err)
		}
	}
	key := identity.FromSeed([identity.SeedSize]byte{1})
	if err := identity.SaveKeyFile(file, key); err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer("PIPES", pipes, "PIPE", pipe, "STATE", state, "SILENT", silent.Addr().String(), "KEY", file, "ID", key.ID().String())
}

// TestSignals sends terminating signals to commands in separate processes. Commands that run until
// a signal get each kind of signal, the other commands get one kind in turn. Each command must end
// soon and keep its work. The limit is wider than the second that a user waits, because the machine
// can be under load.
func TestSignals(t *testing.T) {
	const limit = 5 * time.Second
	names := signalledWorld(t)
	kinds := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
	for i, c := range signalledCommands {
		send := kinds
		if c.until == "" && c.prints == "" {
			send = kinds[i%len(kinds):][:1]
		}
		for _, s := range send {
			t.Run(fmt.Sprint(c.command, " ", s), func(t *testing.T) {
				t.Parallel()
				p := startLine(t, strings.Fields(c.command+" "+names.Replace(c.rest)))
				p.Await(t, c.until)
				code, took := p.End(t, s)
				out := p.Text()
				if code != c.code || took > limit || !strings.Contains(out, c.prints) {
					t.Errorf("ended with %d after %v, want %d and %q: %s", code, took, c.code, c.prints, out)
				}
			})
		}
	}
}

// startLine starts the program in a new folder.
func startLine(t *testing.T, line []string) *signalstest.Process {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Args = append([]string{"psyche"}, line...) // TestMain runs the program under this name
	command.Env = append(os.Environ(), signalledProcess+"=1")
	command.Dir = t.TempDir()
	return signalstest.Start(t, command)
}
