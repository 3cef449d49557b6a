package e2e

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/psyche-go/psyche/proof/e2e/netlab"
	"github.com/psyche-go/psyche/record/event"
)

var internet = flag.Bool("internet", false, "run the tests on hosts with slow links, which need root and minutes")

// home is the link of a participant: 100 ms delay, 1 % packet loss, 20 Mbit/s upload.
var home = netlab.Link{Delay: 100 * time.Millisecond, LossPerMille: 10, Rate: 20e6}

// newInternet creates hosts for a server and clients, or skips the test.
func newInternet(t *testing.T) *netlab.Lab {
	t.Helper()
	if !*internet {
		t.Skip("needs -internet (and root); `make internet` runs it")
	}
	lab, err := netlab.New(1)
	if err != nil {
		skipUnsupported(t, err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return lab
}

func skipUnsupported(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, netlab.ErrUnsupported) {
		t.Skip(err)
	}
	t.Fatal(err)
}

// host adds a host to a lab.
func host(t *testing.T, add func(netlab.Link) (*netlab.Host, error), link netlab.Link) *netlab.Host {
	t.Helper()
	h, err := add(link)
	if err != nil {
		skipUnsupported(t, err)
	}
	return h
}

// startServerOn starts the server on a host.
func (n *network) startServerOn(h *netlab.Host, flags ...string) {
	n.t.Helper()
	n.wrap = h.Wrap
	n.startServer(append([]string{"--server-addr", h.Address().String()}, flags...)...)
}

// startOn starts a client on a host.
func (c *client) startOn(h *netlab.Host, flags ...string) {
	c.network.t.Helper()
	c.wrap = h.Wrap
	c.start(append([]string{"--bind-p2p-address", h.Address().String()}, flags...)...)
}

// TestInternet trains with five clients on five hosts with home links. One client is disconnected
// for half a minute and returns within the epoch. Half a minute is some 90 rounds of the epoch.
func TestInternet(t *testing.T) {
	lab := newInternet(t)
	n := newNetwork(t, rules{clients: 5, minClients: 3, roundsPerEpoch: 240, steps: 240})
	n.startServerOn(host(t, lab.Add, netlab.Link{Delay: 10 * time.Millisecond, Rate: 100e6}))
	var hosts []*netlab.Host
	var clients []*client
	for i := range 5 {
		h := host(t, lab.Add, home)
		c := n.newClient(fmt.Sprintf("client-%d", i+1))
		c.startOn(h)
		hosts, clients = append(hosts, h), append(clients, c)
	}
	victim := clients[4]
	victim.waitPhase("RoundTrain", 3)
	hosts[4].Cut(true)
	time.Sleep(30 * time.Second) // of the wall clock: the disconnection itself is tested
	reached := lastStep(clients[0])
	hosts[4].Cut(false)
	if reached <= 4 {
		t.Errorf("the run reached only step %d while one of five clients was disconnected", reached)
	}
	t.Logf("cut off at step 3, back at step %d", reached)
	digest := finish(t, clients...)
	t.Logf("digest %s", digest)
	checkRun(t, n, clients[:4]...)
	rejoined := waitFor[event.Rejoined](victim)
	trained := 0
	for _, e := range victim.events() {
		if body, ok := e.Body.(event.Trained); ok && body.Step >= rejoined.Step {
			trained++
		}
	}
	if trained == 0 {
		t.Error("the disconnected client trained nothing after its return")
	}
	for i, h := range hosts {
		t.Logf("%s: %+v", clients[i].name, h.Traffic())
	}
}

// TestLocalStepsOverSlowLines has six members with links of 5 Mbit/s that make local steps of Muon,
// with audits. One member is killed and returns. A seventh member trains one of three inner steps
// on tokens of other members; it must be the only ejected member.
func TestLocalStepsOverSlowLines(t *testing.T) {
	lab := newInternet(t)
	r := rules{clients: 7, minClients: 2, roundsPerEpoch: 60, steps: 60}
	n := newNetwork(t, r)
	writeFile(t, n.state, []byte(localSteps(t, stateFile(r, n.data, n.model), "inner_optimizer = \"muon\"\nerror_decay = 0.95\n")))
	n.change("verification_percent = 0", "verification_percent = 40")
	n.change("global_batch_size_start = 6", "global_batch_size_start = 30")
	n.change("global_batch_size_end = 6", "global_batch_size_end = 30")
	n.startServerOn(host(t, lab.Add, netlab.Link{Delay: 10 * time.Millisecond, Rate: 100e6}))
	line := netlab.Link{Delay: 50 * time.Millisecond, LossPerMille: 10, Rate: 5e6}
	var hosts []*netlab.Host
	var honest []*client
	for i := range r.clients - 1 {
		h := host(t, lab.Add, line)
		c := n.newClient(fmt.Sprintf("client-%d", i+1))
		c.startOn(h)
		hosts, honest = append(hosts, h), append(honest, c)
	}
	cheat, at := n.newClient("one-step"), host(t, lab.Add, line)
	cheat.wrap = at.Wrap
	cheat.startAltered("cheat/cheater", "-listen", at.Address().String(), "-attack", "one-step")

	victim := honest[5]
	victim.waitPhase("RoundTrain", 5)
	victim.kill(t)
	victim.startOn(hosts[5])
	digest := finish(t, honest...)
	checkRun(t, n, honest...)
	if !countedAgain(t, victim) {
		t.Error("no result of the restarted member counted")
	}
	outcomes := make(map[string]int) // of audits of the cheat
	for _, c := range honest {
		ejected := uint32(0)
		for _, e := range c.events() {
			switch body := e.Body.(type) {
			case event.Audit:
				if body.Trainer == cheat.id {
					outcomes[body.Outcome]++
				}
			case event.Accused:
				if body.Client != cheat.id {
					t.Errorf("%s accuses an honest member: %+v", c.name, body)
				}
			case event.Ejected:
				if ejected = body.Step; body.Client != cheat.id {
					t.Errorf("%s sees an honest member ejected: %+v", c.name, body)
				}
			}
		}
		if ejected == 0 {
			t.Errorf("%s did not see the cheat ejected", c.name)
		}
		t.Logf("%s saw the cheat ejected in step %d", c.name, ejected)
	}
	t.Logf("audits of the cheat: %v; digest %s", outcomes, digest)
}

// lastStep returns the newest step that a client saw.
func lastStep(c *client) uint32 {
	c.network.t.Helper()
	step := uint32(0)
	for _, e := range c.events() {
		if state, ok := e.Body.(event.State); ok {
			step = max(step, state.Step)
		}
	}
	return step
}

// TestBehindFirewalls trains with two clients that accept no connections from outside, and one
// client that all clients can reach.
func TestBehindFirewalls(t *testing.T) {
	lab := newInternet(t)
	n := newNetwork(t, rules{clients: 3, minClients: 2, roundsPerEpoch: 5, steps: 10})
	link := netlab.Link{Delay: 20 * time.Millisecond, Rate: 50e6}
	n.startServerOn(host(t, lab.Add, link))
	var clients []*client
	for i, add := range []func(netlab.Link) (*netlab.Host, error){lab.Add, lab.AddGuarded, lab.AddGuarded} {
		c := n.newClient(fmt.Sprintf("client-%d", i+1))
		c.startOn(host(t, add, link))
		clients = append(clients, c)
	}
	t.Logf("digest %s", finish(t, clients...))
	checkRun(t, n, clients...)
	for _, c := range clients {
		trained := 0
		for _, e := range c.events() {
			if applied, ok := e.Body.(event.Applied); ok && applied.OwnCounted {
				trained++
			}
		}
		t.Logf("%s: %d of 10 results counted", c.name, trained)
		if trained < 8 {
			t.Errorf("%s: only %d of 10 results counted", c.name, trained)
		}
	}
}
