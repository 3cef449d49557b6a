package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/record/invite"
)

// TestHost hosts a run on a text with one command. The host is killed, continues, a friend joins by the
// printed link, and the host stops at Ctrl-C and continues again.
func TestHost(t *testing.T) {
	t.Parallel()
	needClient(t)
	dir := t.TempDir()
	texts := filepath.Join(dir, "my texts")
	for i := range 20 {
		path := filepath.Join(texts, strconv.Itoa(i)+".txt")
		text := strings.Repeat("Line "+strconv.Itoa(i)+" of a text that members learn together.\n", 200)
		if err := os.MkdirAll(texts, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := filepath.Join(dir, "host.log")
	args := []string{
		"host", texts, "--friends", "1", "--link", "1gbit", "--hours", "0.01", "--public-addr", "127.0.0.1",
		"--dir", filepath.Join(dir, "run"), "--client", clientBinary, "--port", strconv.Itoa(hostPorts(t)),
	}
	begun := time.Now()
	host := start(t, "host", log, serverBinary, nil, args...)
	host.waitText(t, "round 1 of", 1)
	t.Logf("first round after %v", time.Since(begun))
	code, out := run(t, serverBinary, args...)
	checkRefusal(t, "a second host", code, out, []string{"another psyche host uses the folder"})
	host.kill(t)

	host = start(t, "host again", log, serverBinary, nil, args...)
	host.waitText(t, "the run has begun, and continues", 1)
	host.waitText(t, "psyche-client join '", 2)
	friend := start(t, "friend", filepath.Join(dir, "friend.log"), clientBinary, []string{"XDG_STATE_HOME=" + filepath.Join(dir, "friend")},
		"join", linkIn(t, host.text(t)), "--bind-p2p-address", "127.0.0.1", "--threads", "1", "--device", "cpu")
	host.waitText(t, "members: 2", 1)
	friend.waitText(t, ", loss ", 1)
	host.interrupt(t)
	if code := host.exitCode(t, exitTimeout); code != 0 {
		t.Errorf("after Ctrl-C: exit code %d", code)
	}
	if client, err := os.ReadFile(filepath.Join(dir, "run", "client", "client.log")); err != nil || !strings.Contains(string(client), "leaving: ") {
		t.Errorf("%v; the host's client did not leave the run properly", err)
	}

	seats := strings.Count(host.text(t), "  members: ")
	host = start(t, "host after Ctrl-C", log, serverBinary, nil, args...)
	host.waitText(t, "  members: ", seats+1) // it is a member again, or waits for the next epoch
	host.interrupt(t)
	if code := host.exitCode(t, exitTimeout); code != 0 {
		t.Errorf("after the second Ctrl-C: exit code %d", code)
	}
	noPanic(t, "host", host.text(t))
}

// linkIn returns the newest invite link in the output of psyche host.
func linkIn(t *testing.T, text string) string {
	t.Helper()
	all := regexp.MustCompile(`psyche-client join ('.*')`).FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		t.Fatalf("no invite link in\n%s", text)
	}
	link, err := invite.Parse(all[len(all)-1][1])
	if err != nil {
		t.Fatal(err)
	}
	return link.String()
}

// hostPorts returns the first of five free ports in a row.
func hostPorts(t *testing.T) int {
	t.Helper()
	for {
		port, err := child.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if child.IsFree(port+1) && child.IsFree(port+2) && child.IsFree(port+3) && child.IsFree(port+4) {
			return port
		}
	}
}
