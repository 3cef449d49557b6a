package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/face/dash/samples"
	"github.com/psyche-go/psyche/face/dash/talk"
	"github.com/psyche-go/psyche/record/invite"
)

// TestHost hosts a run on a text with one command. The host is killed, continues, a friend joins by the
// printed link, and the host stops at Ctrl-C and continues again.
func TestHost(t *testing.T) {
	t.Parallel()
	needClient(t)
	dir := t.TempDir()
	texts := hostTexts(t, dir)
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

// hostTexts writes the texts of a hosted run and returns their folder.
func hostTexts(t *testing.T, dir string) string {
	t.Helper()
	texts := filepath.Join(dir, "my texts")
	if err := os.MkdirAll(texts, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		text := strings.Repeat("Line "+strconv.Itoa(i)+" of a text that members learn together.\n", 200)
		if err := os.WriteFile(filepath.Join(texts, strconv.Itoa(i)+".txt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

// TestHostedModel hosts a short run to its end. Its page then has samples of the model and a chat. After Ctrl-C the
// same command offers both again, and without the chat it offers the samples.
func TestHostedModel(t *testing.T) {
	t.Parallel()
	needClient(t)
	dir := t.TempDir()
	port := hostPorts(t)
	log := filepath.Join(dir, "host.log")
	args := []string{
		"host", hostTexts(t, dir), "--friends", "0", "--link", "1gbit", "--hours", "0.01", "--public-addr", "127.0.0.1",
		"--dir", filepath.Join(dir, "run"), "--client", clientBinary, "--port", strconv.Itoa(port),
	}
	if code, out := run(t, serverBinary, append(args, "--prepare-only")...); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	shorten(t, filepath.Join(dir, "run", "state.toml"))
	page := fmt.Sprintf("http://127.0.0.1:%d", port+1)
	for _, chat := range []string{"auto", "auto", "off"} {
		host := start(t, "host", log, serverBinary, nil, append(args, "--chat", chat)...)
		var told hostedRun
		for deadline := time.Now().Add(runTimeout); len(told.Samples.Texts) == 0 || chat != "off" && !told.Talk.Ready; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("--chat=%s: the page reports %+v", chat, told)
			}
			told = look(t, page)
		}
		if n := len(told.Samples.Texts); n != 2 || told.Samples.Texts[0].Step != 0 || told.Samples.Texts[1].Step == 0 || !strings.HasPrefix(told.Samples.Prompt, "Line ") {
			t.Errorf("samples %+v", told.Samples)
		}
		status, text := say(t, page, "Line 3 of a text")
		if want := map[bool]int{true: http.StatusOK, false: http.StatusNotFound}[chat != "off"]; status != want {
			t.Errorf("--chat=%s: status %d, want %d: %s", chat, status, want, text)
		}
		host.interrupt(t)
		if code := host.exitCode(t, exitTimeout); code != 0 {
			t.Errorf("after Ctrl-C: exit code %d", code)
		}
		noPanic(t, "host", host.text(t))
		if !child.IsFree(port + 4) {
			t.Error("the model's server is still running")
		}
	}
}

// shorten gives a run few rounds.
func shorten(t *testing.T, path string) {
	t.Helper()
	state, err := os.ReadFile(path)
	if err == nil {
		state = regexp.MustCompile(`(?m)^total_steps = \d+`).ReplaceAll(state, []byte("total_steps = 12"))
		err = os.WriteFile(path, state, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// hostedRun is a part of the answer of /api/run.
type hostedRun struct {
	Talk    talk.Offer      `json:"talk"`
	Samples samples.Samples `json:"samples"`
}

// look returns the page's data for the only run; nothing if the page does not answer.
func look(t *testing.T, page string) (told hostedRun) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page+"/api/run?run=my-texts", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return told
	}
	defer func() { _ = answer.Body.Close() }()
	_ = json.NewDecoder(answer.Body).Decode(&told) // the page may not know the run yet
	return told
}

// say sends a text to the model.
func say(t *testing.T, page, text string) (status int, answer string) {
	t.Helper()
	body, err := json.Marshal(talk.Question{Messages: []talk.Message{{Role: "user", Content: text}}})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, page+"/api/talk?run=my-texts", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()
	said, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(said)
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
