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

// home is the link of a participant: 100 ms away, one packet of a hundred lost, 20 Mbit/s up.
var home = netlab.Link{Delay: 100 * time.Millisecond, LossPerMille: 10, Rate: 20e6}

// newInternet makes hosts for a server and clients, or skips the test.
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

// startServerOn begins the server's life on a host.
func (n *network) startServerOn(h *netlab.Host, flags ...string) {
	n.t.Helper()
	n.wrap = h.Wrap
	n.startServer(append([]string{"--server-addr", h.Address().String()}, flags...)...)
}

// startOn begins a client's life on a host.
func (c *client) startOn(h *netlab.Host, flags ...string) {
	c.network.t.Helper()
	c.wrap = h.Wrap
	c.start(append([]string{"--bind-p2p-address", h.Address().String()}, flags...)...)
}

// TestInternet trains with five clients on five hosts with links as homes have them. One
// is cut off for half a minute and comes back.
func TestInternet(t *testing.T) {
	lab := newInternet(t)
	n := newNetwork(t, rules{clients: 5, minClients: 3, roundsPerEpoch: 6, steps: 36})
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
	time.Sleep(30 * time.Second) // of the wall clock: the cut itself is what is tested
	reached := lastStep(clients[0])
	hosts[4].Cut(false)
	if reached <= 4 {
		t.Errorf("the run reached only step %d while one client of five was cut off", reached)
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
		t.Error("the client that was cut off trained nothing after it came back")
	}
	for i, h := range hosts {
		t.Logf("%s: %+v", clients[i].name, h.Traffic())
	}
}

// lastStep is the newest step that a client saw.
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

// TestBehindFirewalls trains with two clients that nobody can reach, and one that all can.
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
