package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/record/invite"
)

// joining are the flags of a member on this machine that joins by a link.
func (n *network) joining(link string, flags ...string) []string {
	return append([]string{
		"join", link, "--bind-p2p-address", "127.0.0.1", "--data-path", n.data,
		"--threads", "1", "--device", "cpu", "--max-blob-memory", "64",
	}, flags...)
}

// TestJoinByLink lets members join by what the server prints, and by nothing else: the model comes
// from the server, a key is made and kept, and a link that is not of this server or run is refused.
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
		t.Fatalf("%v; the server's log has another link than\n%s", err, out)
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
			t.Fatalf("%s: exit code %d", member.name, code)
		}
		if !strings.Contains(member.text(t), "source=initial") {
			t.Errorf("%s does not start with the initial model", member.name)
		}
	}
	file := filepath.Join(kept, "psyche", "identity.json")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info, err)
	}
	if id := strings.TrimSpace(must(t, serverBinary, "keys", "show", file)); !strings.Contains(stay.text(t), "id="+id) {
		t.Errorf("the member was not %s", id)
	}
	if saved, err := filepath.Glob(filepath.Join(kept, "psyche", "runs", "e2e-*", "e2e-step2", "model.safetensors")); err != nil || len(saved) != 1 {
		t.Errorf("saved checkpoints: %v, %v", saved, err)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("--ephemeral kept something")
	}
}
