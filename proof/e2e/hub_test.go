package e2e

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/hub/hubtest"
	"github.com/psyche-go/psyche/record/event"
)

// newHub starts a Hub for the test's processes.
func newHub(t *testing.T) *hubtest.Server {
	s := hubtest.New()
	t.Cleanup(s.Close)
	s.Tokens["hf_write"] = true
	s.PartSize = 10_000
	for name, value := range map[string]string{
		"HF_ENDPOINT": s.URL, "HF_TOKEN": "hf_write", "HF_HOME": t.TempDir(), "HF_HUB_CACHE": "", "HF_HUB_OFFLINE": "",
	} {
		t.Setenv(name, value)
	}
	return s
}

// beginFrom makes the run start with a repository of the Hub.
func (n *network) beginFrom(repo string) {
	n.t.Helper()
	text, err := os.ReadFile(n.state)
	if err != nil {
		n.t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), "[model.LLM.checkpoint.Local]")
	_, after, found := strings.Cut(rest, "[model.LLM.lr_schedule")
	if !found {
		n.t.Fatal("the state file has a different order")
	}
	writeFile(n.t, n.state, []byte(before+"[model.LLM.checkpoint.Hub]\nrepo_id = \""+repo+"\"\n[model.LLM.lr_schedule"+after))
}

// TestHub starts a run with a model from the Hub, uploads its checkpoints, and starts a second run
// from the uploaded checkpoint.
func TestHub(t *testing.T) {
	needClient(t)
	s := newHub(t)
	n := newNetwork(t, rules{clients: 2, minClients: 2, roundsPerEpoch: 2, steps: 4})
	must(t, clientBinary, "upload", n.model, "org/base")
	n.beginFrom("org/base")
	n.startServer()
	uploading := n.newClient("client-1")
	uploading.start("--hub-repo", "org/out", "--hub-private")
	other := n.newClient("client-2")
	other.start()
	finish(t, uploading, other)
	facts := checkHub(t, s, uploading, 4)
	if facts.DataIndex != 24 || facts.Epoch != 2 || !s.IsPrivate("org/out") {
		t.Errorf("facts %+v, private: %v", facts, s.IsPrivate("org/out"))
	}

	again := newNetwork(t, rules{clients: 2, minClients: 2, roundsPerEpoch: 2, steps: 6})
	again.startServer("--resume-from", "hub:org/out")
	uploading = again.newClient("client-1")
	uploading.start("--hub-repo", "org/out", "--allow-private-repos")
	other = again.newClient("client-2")
	other.start("--allow-private-repos")
	finish(t, uploading, other)
	facts = checkHub(t, s, uploading, 6)
	if facts.DataIndex != 36 || facts.Epoch != 3 {
		t.Errorf("facts %+v", facts)
	}
	for _, e := range uploading.events() {
		if trained, ok := e.Body.(event.Trained); ok && (trained.Step < 5 || trained.Batch[0] < 24) {
			t.Errorf("the second run trained step %d, batch %v", trained.Step, trained.Batch)
		}
	}
	if leaks := s.Leaks(); len(leaks) > 0 {
		t.Errorf("tokens went to the storage: %v", leaks)
	}
}

// checkHub checks that the Hub has the final model of the run, and returns its facts.
func checkHub(t *testing.T, s *hubtest.Server, c *client, step uint32) checkpoint.Facts {
	t.Helper()
	facts, err := checkpoint.ParseFacts(s.Files("org/out", "main")[checkpoint.FactsFile])
	if err != nil {
		t.Fatal(err)
	}
	finished := waitFor[event.Finished](c)
	if facts.Step != step || facts.Digest != finished.Digest {
		t.Errorf("the Hub has %+v, the run ended with %+v", facts, finished)
	}
	dir := strings.TrimSpace(must(t, clientBinary, "download", "org/out"))
	snapshot, err := checkpoint.ReadDir(dir[strings.LastIndexByte(dir, '\n')+1:])
	if err != nil {
		t.Fatal(err)
	}
	if digest := snapshot.Manifest().Digest(); hex.EncodeToString(digest[:]) != facts.Digest {
		t.Errorf("downloaded digest %x, facts %s", digest, facts.Digest)
	}
	if left, _ := filepath.Glob(filepath.Join(c.dir, "checkpoints", ".upload-*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	return facts
}
