package e2e

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/psyche-go/psyche/record/invite"
)

// TestServe lets keepers train a run to its end, one of whose clients is killed in between, and a third leave politely.
func TestServe(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{2, 2, 10, 20})
	n.startServer("--model-path", n.model)
	out := must(t, serverBinary, "run", "invite", "--run-id", "e2e", "--server-addr", n.address, "--known-servers", filepath.Join(n.dir, "known"))
	link, err := invite.Parse(out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:])
	if err != nil {
		t.Fatal(err)
	}
	gone := link
	gone.Port = 1 // nobody is there
	serve := func(name string, links ...string) *process {
		kept := filepath.Join(n.dir, name)
		args := append([]string{"serve"}, links...)
		return start(t, name, kept+".log", clientBinary, []string{"XDG_STATE_HOME=" + kept, "XDG_CACHE_HOME=" + kept}, append(append(args, "--"), n.joining("")[2:]...)...)
	}
	one, two := serve("one", link.String()), serve("two", gone.String(), link.String())
	one.waitText(t, "step 3 of", 1)
	pid, err := strconv.Atoi(regexp.MustCompile(`pid=(\d+)`).FindStringSubmatch(one.text(t))[1])
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
	one.waitText(t, "the client exited before its run ended", 1)
	one.waitText(t, "a client takes part", 2)
	two.waitText(t, "this run is over", 1)
	if code := one.exitCode(t, runTimeout); code != 0 {
		t.Errorf("exit code %d\n%s", code, tail(one.text(t), 20))
	}
	if strings.Count(two.text(t), "a client takes part") != 1 || !strings.Contains(two.text(t), "this run is not open now") {
		t.Errorf("the second\n%s", tail(two.text(t), 20))
	}
	two.interrupt(t) // it waits for a server that is not there
	if code := two.exitCode(t, promptExit); code != interrupted {
		t.Errorf("the second ended with exit code %d", code)
	}
}
