package client

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/record/event"
)

// TestPhases runs the scripts of testdata/phases. Each script specifies one phase of a member's
// life: it drives a run with one observed client, and lists what this client does. With -rewrite
// the test replaces the expected output by the actual output.
//
//	run clients=3 [key=value]… [disk]   a new run that starts with three clients; none runs yet.
//	                 witnesses=N, rounds=N (of an epoch), steps=N (of the run),
//	                 lag=N (apply_lag), commit=N (commit_every_rounds); with disk, the
//	                 client has a folder for its files
//	start            starts the client
//	peers 1 2 [train=TIME]    starts further clients; their actions are not listed
//	wait TIME        lets time pass
//	until PHASE [step=N] [epoch=N]      lets time pass until the run is in that phase
//	until end        lets time pass until the client has ended
//	interrupt        Ctrl-C
//	kill             kills the client; the host keeps its seat for now
//	kill N…          kills peers, and the host withdraws them
//	disk fails|works|lost     every access to the folder fails; it works again; its files are lost
//	block from=N|me to=N|me   drops the messages between two clients; without from or to: any client
//	unblock
//	slow N|me by=TIME makes later trainings take longer
//	break N|me       makes the trainings of a peer fail, or damages the client's weights
//	repair N|me      ends that
//	host stops|starts                   the host stops, or continues the run
//	host pauses|resumes|withdraws       the run, or the client's seat
//	state            prints the state of the run
//
// Further commands may follow on the lines below a command. The output lists the seconds since run
// and the client's work: its actions, messages and events. The argument quiet removes the output up
// to that line. The client runs in virtual time. Each access to the host, to peers, to data and to
// the trainer takes some milliseconds, so that the order of its work is determined.
func TestPhases(t *testing.T) {
	paths, err := filepath.Glob("testdata/phases/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &script{}
				datadriven.RunTest(t, path, s.run)
				s.end()
			})
		})
	}
}

// look is the interval at which a script looks at the run and at the client's files.
const look = 20 * time.Millisecond

// script is a run that a file controls.
type script struct {
	*world
	log   chronicle
	lag   uint32
	disk  string            // folder of the client; empty: none
	files []string          // in disk
	peers map[int]*member   // running peers, by number
	links map[int]*link     // to the host, by number; 0 is the client
	me    *process          // newest process of the client; nil: none
	kept  coordinator.State // of the host that stopped

	mu      sync.Mutex
	slow    map[int]time.Duration // additional time of trainings, by number
	broken  map[int]bool
	blocked [][2]identity.ID // senders and receivers; zero: all
}

// run runs the command of a directive, and then the commands in its further lines.
func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(strings.TrimSpace(d.Input)) {
		s.execute(&command{t, d}, &out)
		next := *d
		d = &next
		var err error
		d.Cmd, d.CmdArgs, err = datadriven.ParseLine(line)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
	}
	s.execute(&command{t, d}, &out)
	return out.String()
}

// execute runs a command, and adds its output.
func (s *script) execute(c *command, out *strings.Builder) {
	c.Helper()
	quiet := c.word("quiet")
	s.do(c)
	synctest.Wait()
	s.lookAtDisk()
	out.WriteString(s.log.take())
	switch {
	case quiet:
		out.Reset()
	case c.Cmd == "state":
		out.WriteString(s.state())
	}
}

func (s *script) do(c *command) {
	c.Helper()
	switch c.Cmd {
	case "run":
		s.create(c)
	case "start":
		s.start(c)
	case "peers":
		s.startPeers(c)
	case "wait":
		for until := time.Now().Add(c.duration(c.first())); time.Now().Before(until); {
			s.pass()
		}
	case "until":
		s.until(c)
	case "interrupt":
		s.me.cancel()
	case "kill":
		s.kill(c)
	case "disk":
		c.check(s.changeDisk(c.first()))
	case "block", "unblock", "slow", "break", "repair":
		s.disturb(c)
	case "host":
		s.changeHost(c)
	case "state":
	default:
		c.Fatalf(c.T, "unknown command")
	}
}

// disturb changes the network and the trainers.
func (s *script) disturb(c *command) {
	c.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c.Cmd {
	case "block":
		s.blocked = append(s.blocked, [2]identity.ID{c.id("from"), c.id("to")})
	case "unblock":
		s.blocked = nil
	case "slow":
		s.slow[c.number(c.first())] = c.duration(c.value("by", ""))
	default:
		s.broken[c.number(c.first())] = c.Cmd == "break"
	}
}

// create makes the run and its network.
func (s *script) create(c *command) {
	c.Helper()
	s.end()
	s.log.take()
	s.me, s.disk, s.files = nil, "", nil
	s.peers, s.links = make(map[int]*member), make(map[int]*link)
	s.slow, s.broken, s.blocked = make(map[int]time.Duration), make(map[int]bool), nil
	config := clienttest.Config(uint16(c.count("clients", 1)))
	config.WitnessNodes = uint16(c.count("witnesses", 0))
	config.RoundsPerEpoch, config.TotalSteps = uint32(c.count("rounds", 3)), uint32(c.count("steps", 9))
	s.lag = uint32(c.count("lag", 1))
	s.world = newWorld(c.T, config, fmt.Appendf(nil, `{"CommitEveryRounds": %d}`, c.count("commit", 50))...)
	s.hub.DropLink = s.drops
	s.hub.DropGossip = func(from, to identity.ID, _ []byte) bool { return s.drops(from, to) }
	if c.word("disk") {
		s.disk = filepath.Join(s.dir, "disk")
	}
	s.log.began = time.Now()
}

// drops reports whether messages between two clients are lost.
func (s *script) drops(from, to identity.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.blocked, func(b [2]identity.ID) bool {
		return (b[0] == from || b[0] == identity.ID{}) && (b[1] == to || b[1] == identity.ID{})
	})
}

// start starts a process of the client.
func (s *script) start(c *command) {
	c.Helper()
	key := clienttest.Key(0)
	s.me = &process{log: &s.log, member: member{w: s.world, id: key.ID(), done: make(chan struct{})}}
	connection, err := s.host.Attach(key)
	c.check(err)
	synctest.Wait() // until the peers have seen it
	l := newLink(connection, s.me, 10*time.Millisecond)
	s.links[0] = l
	me := s.me
	me.backend, me.net = connection, s.hub.Attach(key.ID())
	me.trainer = &clienttest.Trainer{ID: key.ID(), Duration: 300 * time.Millisecond, Lag: s.lag, Corrupt: func(uint32) bool { return s.isBroken(0) }}
	events := event.Unwritten()
	events.Watch(me.see)
	node, err := New(Options{
		Key: key, RunID: clienttest.RunID, Backend: l, Network: &observedNetwork{me.net, me}, Data: observedData{me}, Events: events,
		Logger:        slog.New(observedLog{slog.DiscardHandler, me}),
		Announcements: &observedSignatures{env.Signed{Key: key}, me, keep.Folder{Dir: s.disk, RunID: clienttest.RunID, ID: key.ID()}},
		CheckpointDir: s.disk,
		Initial: func(ctx context.Context, _ coordinator.Checkpoint) (checkpoint.Snapshot, error) {
			err := me.does(ctx, 200*time.Millisecond, "fetches the initial model from the hub")
			return clienttest.Model(), err
		},
		NewTrainer: func(ctx context.Context, m checkpoint.Snapshot, _ env.Definition) (env.Trainer, error) {
			trainer := &observedTrainer{me.trainer, me, func() time.Duration { return s.delay(0) }}
			return trainer, trainer.Load(ctx, m)
		},
	})
	c.check(err)
	me.node = node
	ctx, cancel := context.WithCancel(s.ctx)
	me.cancel = cancel
	s.tasks.Go(func() {
		defer close(me.done)
		me.err = node.Run(ctx)
		me.ended()
		me.net.Close()
		if host := l.current(); host != nil {
			_ = host.Close()
		}
	})
}

// startPeers starts clients that are not observed.
func (s *script) startPeers(c *command) {
	c.Helper()
	train := c.duration(c.value("train", "400ms"))
	for _, n := range c.clients() {
		later := time.Duration(30+n) * time.Millisecond // no two clients act at the same moment
		s.peers[n] = s.launch(n, func(o *options) {
			o.trainer.Duration, o.trainer.Lag, o.trainer.Copying = train+later, s.lag, 100*time.Millisecond+later
			o.trainer.Silent = func(uint32) bool { return s.isBroken(n) }
			o.trainer.OnTrain = func(uint32, assign.BatchID) { time.Sleep(s.delay(n)) }
			o.RepublishInterval = time.Hour // a peer that announces while it pushes reaches the client in any order
			s.links[n] = newLink(o.Backend, nil, later)
			o.Backend = s.links[n]
		})
	}
}

func (s *script) isBroken(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken[n]
}

func (s *script) delay(n int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slow[n]
}

// pass lets some time pass.
func (s *script) pass() {
	time.Sleep(look)
	synctest.Wait()
	s.lookAtDisk()
}

// until lets time pass until the run is in a phase, or the client has ended.
func (s *script) until(c *command) {
	c.Helper()
	phase, step, epoch := c.first(), c.value("step", ""), c.value("epoch", "")
	for limit := time.Now().Add(10 * time.Minute); time.Now().Before(limit); s.pass() {
		if phase == "end" {
			select {
			case <-s.me.done:
				return
			default:
				continue
			}
		}
		state := s.host.State()
		if state.RunState.String() == phase && (step == "" || step == fmt.Sprint(state.Progress.Step)) && (epoch == "" || epoch == fmt.Sprint(state.Progress.Epoch)) {
			return
		}
	}
	c.Fatalf(c.T, "not in time; the run is\n%s\n%s", s.state(), s.log.take())
}

// kill ends clients without a message to the others.
func (s *script) kill(c *command) {
	c.Helper()
	if len(c.CmdArgs) == 0 {
		s.me.dead.Store(true)
		s.me.net.Close()
		s.me.backend.Cut()
		<-s.me.done
		delete(s.links, 0)
		return
	}
	for _, n := range c.clients() {
		s.peers[n].crash()
		delete(s.peers, n)
		delete(s.links, n)
	}
}

func (s *script) end() {
	if s.me != nil {
		s.me.dead.Store(true)
		s.me.crash()
	}
	for _, m := range s.peers {
		m.crash()
	}
}

// changeDisk makes the client's folder fail, work or lose its files.
func (s *script) changeDisk(what string) error {
	away := s.disk + ".away"
	switch what {
	case "fails": // a file in place of the folder fails every access
		if err := os.Rename(s.disk, away); err != nil {
			return err
		}
		return os.WriteFile(s.disk, nil, 0o600)
	case "works":
		if err := os.Remove(s.disk); err != nil {
			return err
		}
		return os.Rename(away, s.disk)
	case "lost":
		return os.RemoveAll(s.disk)
	}
	return fmt.Errorf("unknown state of a disk: %s", what)
}

// lookAtDisk lists new and removed models in the client's folder.
func (s *script) lookAtDisk() {
	if s.disk == "" {
		return
	}
	found, _ := filepath.Glob(filepath.Join(s.disk, clienttest.RunID+"-*"))
	momenta, _ := filepath.Glob(filepath.Join(s.disk, ".optimizer", "*.safetensors"))
	for i, path := range momenta {
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), clienttest.RunID+"-step"), "-")
		momenta[i] = "the optimizer's state of step " + name
	}
	for i, path := range found {
		name := strings.TrimPrefix(filepath.Base(path), clienttest.RunID+"-")
		name = strings.Replace(name, "step", "the checkpoint of step ", 1)
		name = strings.Replace(name, ".pending", ", pending", 1)
		found[i] = strings.Replace(name, "commit", "the intermediate checkpoint of step ", 1)
	}
	found = append(found, momenta...)
	for _, name := range found {
		if !slices.Contains(s.files, name) {
			s.log.add(onDisk, "disk: has "+name, "")
		}
	}
	for _, name := range s.files {
		if !slices.Contains(found, name) {
			s.log.add(onDisk, "disk: no longer has "+name, "")
		}
	}
	s.files = found
}

// changeHost stops or starts the host, or pauses or resumes the run.
func (s *script) changeHost(c *command) {
	c.Helper()
	switch what := c.first(); what {
	case "pauses", "resumes":
		c.check(s.host.Apply(coordinator.SetPaused{Paused: what == "pauses"}))
	case "withdraws":
		c.check(s.host.Apply(coordinator.Withdraw{Client: coordinator.ClientID(s.me.id)}))
	case "stops":
		s.kept = s.host.State()
		for _, l := range s.links {
			l.cut()
		}
	case "starts":
		s.goBack(s.kept)
		for _, n := range slices.Sorted(maps.Keys(s.links)) {
			m, l := s.peers[n], s.links[n]
			if n == 0 {
				m = &s.me.member
			}
			var err error
			m.backend, err = s.host.Attach(clienttest.Key(n))
			c.check(err)
			l.use(m.backend)
			c.check(m.backend.Announce(c.Context(), m.net.Addrs()))
		}
	default:
		c.Fatalf(c.T, "unknown command for a host: %s", what)
	}
}

// state describes the run.
func (s *script) state() string {
	state := s.host.State()
	var out strings.Builder
	fmt.Fprintf(&out, "%v, epoch %d, step %d; the model is of step %d\n", state.RunState, state.Progress.Epoch, state.Progress.Step, state.Model.Checkpoint.Step)
	for _, list := range []struct {
		name string
		of   []coordinator.Client
	}{{"members", state.Epoch.Clients}, {"waiting", state.Pending}} {
		var names []string
		for _, c := range list.of {
			name := nameOf(identity.ID(c.ID))
			if c.State != coordinator.Healthy {
				name += " (" + c.State.String() + ")"
			}
			names = append(names, name)
		}
		if slices.Sort(names); len(names) == 0 {
			names = []string{"none"}
		}
		fmt.Fprintf(&out, "%s: %s\n", list.name, strings.Join(names, ", "))
	}
	return out.String()
}

// nameOf returns the name of a client in scripts.
func nameOf(id identity.ID) string {
	for n := 1; n < 9; n++ {
		if id == clienttest.Key(n).ID() {
			return fmt.Sprint("peer ", n)
		}
	}
	return "the client"
}

// command is a command of a script.
type command struct {
	*testing.T
	*datadriven.TestData
}

// word reports whether the command has an argument without a value, and removes it.
func (c *command) word(name string) bool {
	i := slices.IndexFunc(c.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == name && len(a.Vals) == 0 })
	if i >= 0 {
		c.CmdArgs = slices.Delete(c.CmdArgs, i, i+1)
	}
	return i >= 0
}

// first returns the first argument.
func (c *command) first() string {
	c.Helper()
	if len(c.CmdArgs) == 0 {
		c.Fatalf(c.T, "an argument is missing")
	}
	return c.CmdArgs[0].Key
}

// value returns the value of an argument, or other if it is missing.
func (c *command) value(key, other string) string {
	for _, a := range c.CmdArgs {
		if a.Key == key && len(a.Vals) == 1 {
			return a.Vals[0]
		}
	}
	return other
}

// count is value for a number.
func (c *command) count(key string, other int) int {
	c.Helper()
	return c.number(c.value(key, strconv.Itoa(other)))
}

// clients returns the numbers of the clients that the command names.
func (c *command) clients() (all []int) {
	c.Helper()
	for _, a := range c.CmdArgs {
		if len(a.Vals) == 0 {
			all = append(all, c.number(a.Key))
		}
	}
	return all
}

// number parses a number; me is the observed client.
func (c *command) number(digits string) int {
	c.Helper()
	if digits == "me" {
		return 0
	}
	n, err := strconv.Atoi(digits)
	c.check(err)
	return n
}

func (c *command) duration(words string) time.Duration {
	c.Helper()
	d, err := time.ParseDuration(words)
	c.check(err)
	return d
}

// id returns the client that an argument names, or zero.
func (c *command) id(key string) (none identity.ID) {
	c.Helper()
	if name := c.value(key, ""); name != "" {
		return clienttest.Key(c.number(name)).ID()
	}
	return none
}

func (c *command) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatalf(c.T, "%v", err)
	}
}
