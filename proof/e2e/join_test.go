package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/record/invite"
)

// joining are the flags of a member on this machine that joins by an invite link.
func (n *network) joining(link string, flags ...string) []string {
	return append([]string{
		"join", link, "--bind-p2p-address", "127.0.0.1", "--data-path", n.data,
		"--threads", "1", "--device", "cpu", "--max-blob-memory", "64",
	}, flags...)
}

// TestJoinByLink has members that join only by the link that the server prints. They get the model
// from the server, and create and store a key. A link of a different server or run is refused.
func TestJoinByLink(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{2, 2, 2, 2})
	server := n.startServer("--model-path", n.model)
	server.waitText(t, "others join with: psyche-client join", 1)
	code, out := run(t, serverBinary, "run", "invite", "--run-id", "e2e", "--server-addr", n.address, "--known-servers", filepath.Join(n.dir, "known"))
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	link, err := invite.Parse(out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:])
	if err != nil || !strings.Contains(server.text(t), link.ForShell()) {
		t.Fatalf("%v; the server's log has a different link than\n%s", err, out)
	}

	t.Run("of another server or run", func(t *testing.T) {
		run, key, folder := link, link, t.TempDir()
		run.Run[0]++
		key.Key[0]++
		refused(t, folder, []string{link.Genesis(), run.Genesis()}, clientBinary, n.joining(run.String(), "--ephemeral")...)
		refused(t, folder, []string{link.Key.String(), key.Key.String()}, clientBinary, n.joining(key.String(), "--ephemeral")...)
		refused(t, folder, []string{"genesis"}, clientBinary, n.joining(strings.Split(link.String(), "&")[0], "--ephemeral")...)
	})

	kept, none := filepath.Join(n.dir, "kept"), filepath.Join(n.dir, "none")
	stay := start(t, "kept", filepath.Join(n.dir, "kept.log"), clientBinary, []string{"XDG_STATE_HOME=" + kept, "XDG_CACHE_HOME=" + kept}, n.joining(link.String())...)
	pass := start(t, "ephemeral", filepath.Join(n.dir, "none.log"), clientBinary, []string{"XDG_STATE_HOME=" + none, "XDG_CACHE_HOME=" + kept + "2"}, n.joining(link.ForShell(), "--ephemeral")...)
	for _, member := range []*process{stay, pass} {
		if code := member.exitCode(t, runTimeout); code != 0 {
			t.Fatalf("%s: exit code %d", member.Name, code)
		}
		if !strings.Contains(member.text(t), "source=initial") {
			t.Errorf("%s does not start with the initial model", member.Name)
		}
	}
	file := filepath.Join(kept, "psyche", "identity.json")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info, err)
	}
	if id := strings.TrimSpace(must(t, serverBinary, "keys", "show", file)); !strings.Contains(stay.text(t), "id="+id) {
		t.Errorf("the client is not the member %s", id)
	}
	if saved, err := filepath.Glob(filepath.Join(kept, "psyche", "runs", "e2e-*", "e2e-step2", "model.safetensors")); err != nil || len(saved) != 1 {
		t.Errorf("saved checkpoints: %v, %v", saved, err)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("--ephemeral kept something")
	}
}

// TestSecondJoinInOneFolder starts a client for a run that another client of the same user has
// joined. The second client is refused with the run, the process and the remedy, and the first
// client completes the run undisturbed.
func TestSecondJoinInOneFolder(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{2, 2, 2, 2})
	server := n.startServer("--model-path", n.model)
	server.waitText(t, "others join with: psyche-client join", 1)
	link := strings.TrimSpace(must(t, serverBinary, "run", "invite", "--run-id", "e2e", "--server-addr", n.address, "--known-servers", filepath.Join(n.dir, "known")))
	link = link[strings.LastIndex(link, "\n")+1:]
	home := filepath.Join(n.dir, "kept")
	environment := []string{"XDG_STATE_HOME=" + home, "XDG_CACHE_HOME=" + home}
	first := start(t, "first", filepath.Join(n.dir, "first.log"), clientBinary, environment, n.joining(link)...)
	first.waitText(t, "the run's initial model is on this machine", 1)
	folders, err := filepath.Glob(filepath.Join(home, "psyche", "runs", "e2e-*"))
	if err != nil || len(folders) != 1 {
		t.Fatal(folders, err)
	}
	for _, flags := range [][]string{nil, {"--identity-secret-key-path", keyFile(t, n.dir)}} { // the folder is in use, whatever the key
		second := start(t, "second", filepath.Join(n.dir, "second.log"), clientBinary, environment, n.joining(link, flags...)...)
		code := second.exitCode(t, exitTimeout)
		checkRefusal(t, "join", code, second.text(t), []string{
			"you already take part in run", fmt.Sprintf("(process %d)", first.PID()), "end that client first", "--ephemeral",
		})
	}
	pass := start(t, "ephemeral", filepath.Join(n.dir, "pass.log"), clientBinary, environment, n.joining(link, "--ephemeral")...)
	for _, member := range []*process{first, pass} {
		if code := member.exitCode(t, runTimeout); code != 0 || !strings.Contains(member.text(t), "the run is finished") {
			t.Errorf("%s: exit code %d", member.Name, code)
		}
	}
	log, err := os.ReadFile(filepath.Join(folders[0], "events.jsonl"))
	if err != nil || strings.Count(string(log), `"started"`) != 1 {
		t.Errorf("%v; the event log has more than the first client's start\n%s", err, log)
	}
}

// keyFile creates a key file.
func keyFile(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "second.json")
	if _, err := os.Stat(path); err != nil {
		must(t, serverBinary, "keys", "new", "--output", path)
	}
	return path
}
