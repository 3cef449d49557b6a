package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/remote"
	"github.com/psyche-go/psyche/files/data/remote/message"
	"github.com/psyche-go/psyche/record/event"
)

// freeAddress returns a free loopback address.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := child.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// served configures the network's run to read from a data server, and returns its data.toml.
func (n *network) served(location string) string {
	n.t.Helper()
	text, err := os.ReadFile(n.state)
	if err != nil {
		n.t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), "[model.LLM.data_location.Local]\n")
	_, after, found := strings.Cut(rest, "[model.LLM.checkpoint.Local]")
	if !found {
		n.t.Fatal("the run has no local data")
	}
	writeFile(n.t, n.state, []byte(before+"[model.LLM.data_location]\nServer = "+location+"\n[model.LLM.checkpoint.Local]"+after))
	config := filepath.Join(n.dir, "data.toml")
	writeFile(n.t, config, fmt.Appendf(nil, "dir = %q\ntoken_size = \"TwoBytes\"\nseq_len = %d\nshuffle_seed = [%s7]\n", n.data, seqLen, strings.Repeat("7, ", 31)))
	return config
}

// TestDataServerKilled trains from a separate data server, which is killed and restarted during the
// run. It also sends the server requests that it must refuse.
func TestDataServerKilled(t *testing.T) {
	t.Parallel()
	const steps = 200 // a round of this model takes some hundredths of a second
	n := newNetwork(t, rules{clients: 2, minClients: 2, roundsPerEpoch: steps, steps: steps})
	key := n.newClient("data-server")
	address := freeAddress(t)
	config := n.served(fmt.Sprintf("{ addr = %q, key = %q }", address, key.id))
	n.startServer()
	serve := func() *process {
		return start(t, "data server", filepath.Join(key.dir, "output.log"), serverBinary, nil, "data", "serve", "--data-config", config,
			"--run-id", "e2e", "--server-addr", n.address, "--known-servers", n.saved+".known", "--listen-addr", address,
			"--keypair", key.key, "--log", "json", "--events-dir", key.dir)
	}
	server := serve()
	server.waitText(t, "serving data", 1)
	clients := n.startClients(2)
	clients[0].waitPhase("RoundTrain", 2)
	askForOthers(t, n, address, key.id)
	server.kill(t)
	clients[0].waitText(t, "data server unreachable; retrying", 2)
	server = serve()
	finish(t, clients...)
	checkRun(t, n, clients...)
	for _, c := range clients {
		checkStayed(t, c, steps)
	}
	trained := 0
	for _, e := range clients[0].events() {
		if _, ok := e.Body.(event.Trained); ok {
			trained++
		}
	}
	if trained != steps {
		t.Errorf("client-1 trained %d batches of %d", trained, steps)
	}
	server.interrupt(t)
	if code := server.exitCode(t, promptExit); code != 0 {
		t.Errorf("the data server ended with exit code %d", code)
	}
	noPanic(t, "data server", server.text(t))
	for _, reason := range []string{"not a member of the run", "neither assigned to the key"} {
		if !strings.Contains(server.text(t), reason) {
			t.Errorf("the data server did not log a refusal because %q", reason)
		}
	}
	checkAnswers(t, filepath.Join(key.dir, "events.jsonl"), steps*6)
}

// checkAnswers examines the event log of a data server that was started twice and served at least
// the given number of sequences.
func checkAnswers(t *testing.T, log string, sequences uint64) {
	t.Helper()
	started, states, served, denied := 0, 0, uint64(0), 0
	for e, err := range event.Read(log) {
		if err != nil {
			t.Fatal(err)
		}
		switch body := e.Body.(type) {
		case event.Started:
			started++
		case event.State:
			states++
		case event.Served:
			if body.Denied != "" {
				denied++
			} else if body.Request == "samples" && body.Bytes > 0 {
				served += body.Batch[1] - body.Batch[0]
			}
		}
	}
	if started != 2 || states < 10 || served < sequences-12 || denied == 0 { // a kill may lose the newest counts
		t.Errorf("started %d times, %d states, %d sequences served, %d requests denied", started, states, served, denied)
	}
}

// askForOthers sends requests to a data server as an unknown client, and as a member for batches of
// other members.
func askForOthers(t *testing.T, n *network, address, serverKey string) {
	t.Helper()
	o := remote.Options{
		Inner: true,
		Addr:  address, RunID: "e2e", SeqLen: seqLen, OpenTimeout: time.Second, Timeout: time.Second,
		Trust: func(found identity.ID) error {
			if found.String() != serverKey {
				return fmt.Errorf("the server has the key %s", found)
			}
			return nil
		},
	}
	o.Key = identity.FromSeed([identity.SeedSize]byte{99})
	if _, err := remote.Open(t.Context(), o); !message.Is(err, message.NotMember) {
		t.Errorf("a stranger: %v", err)
	}
	member, err := identity.LoadKeyFile(filepath.Join(n.dir, "client-2", "key.json"))
	if err != nil {
		t.Fatal(err)
	}
	o.Key = member
	c, err := remote.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	// A round has six sequences: the member's and the other member's.
	if _, err := c.Batch(t.Context(), assign.BatchID{Start: 0, End: 6}); !message.Is(err, message.NotAssigned) {
		t.Errorf("batch of a different member: %v", err)
	}
}

// TestServerServesData trains from the run's own data server, which is killed and restarted.
func TestServerServesData(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{clients: 2, minClients: 2, roundsPerEpoch: 3, steps: 6})
	config := n.served(fmt.Sprintf("%q", freeAddress(t)))
	flags := []string{"--data-config", config, "--http-addr", freeAddress(t)}
	n.startServer(flags...)
	clients := n.startClients(2)
	clients[0].waitPhase("RoundTrain", 2)
	n.server.kill(t)
	n.startServer(flags...)
	finish(t, clients...)
	metrics := webPage(t, "http://"+flags[3]+"/metrics")
	checkRun(t, n, clients...)
	for _, c := range clients {
		checkStayed(t, c, 6)
	}
	if !strings.Contains(metrics, `psyche_data_requests_total{kind="samples",result="served"}`) {
		t.Error("the data server's requests are not among the metrics")
	}
	if known, err := os.ReadFile(n.saved + ".known"); err != nil || strings.Count(string(known), "\n") != 1 {
		t.Errorf("the run's own server is also known by a second address, %v:\n%s", err, known)
	}
}

// webPage downloads a page.
func webPage(t *testing.T, address string) string {
	t.Helper()
	client := http.Client{Timeout: commandTimeout}
	response, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: got %s, %v; want nil error and response.StatusCode == http.StatusOK", address, response.Status, err)
	}
	return string(body)
}

// TestAuditsReadFromADataServer audits a run in which only the data server has the data. Auditors
// must get the batches of other members, and no member may be accused, late or ejected.
func TestAuditsReadFromADataServer(t *testing.T) {
	t.Parallel()
	const steps = 24
	n := newNetwork(t, rules{clients: 4, minClients: 2, roundsPerEpoch: steps, steps: steps})
	n.change("verification_percent = 0", "verification_percent = 40")
	config := n.served(fmt.Sprintf("%q", freeAddress(t)))
	n.startServer("--data-config", config)
	clients := n.startClients(4)
	finish(t, clients...)
	checkRun(t, n, clients...)
	passed := 0
	for _, c := range clients {
		checkStayed(t, c, steps)
		for _, e := range c.events() {
			switch body := e.Body.(type) {
			case event.Audit:
				if body.Outcome == "passed" {
					passed++
				} else {
					t.Errorf("%s audited step %d: %s, %s", c.name, body.Step, body.Outcome, body.Detail)
				}
			case event.Accused:
				t.Errorf("%s accused an honest member: %+v", c.name, body)
			}
		}
	}
	if passed < steps/4 {
		t.Errorf("%d audits of %d rounds passed", passed, steps)
	}
	if strings.Contains(n.server.text(t), "denied a request") {
		t.Error("the data server denied a request of an honest member")
	}
}
