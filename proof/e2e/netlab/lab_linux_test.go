package netlab

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The test binary is also the program that runs on the hosts of a lab.
const roleVariable = "NETLAB_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role := strings.Fields(os.Getenv(roleVariable)); {
	case len(role) == 0:
		os.Exit(m.Run())
	case role[0] == "echo":
		echo(role[1])
	case role[0] == "ping":
		ping(role[1])
	}
}

// echo answers every datagram until its standard input ends.
func echo(address string) {
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("listening")
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		_ = conn.Close()
	}()
	buffer := make([]byte, 64)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo(buffer[:n], from)
	}
}

// ping sends one datagram and prints how long its answer took, or "none".
func ping(address string) {
	conn, err := net.Dial("udp", address)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()
	begin := time.Now()
	_, _ = conn.Write([]byte("hello"))
	_ = conn.SetReadDeadline(begin.Add(time.Second))
	if _, err := conn.Read(make([]byte, 64)); err != nil {
		fmt.Println("none")
		return
	}
	fmt.Println(time.Since(begin))
}

func newLab(t *testing.T) *Lab {
	t.Helper()
	lab, err := New(1)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return lab
}

func add(t *testing.T, make func(Link) (*Host, error), link Link) *Host {
	t.Helper()
	h, err := make(link)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *Host) run(role string) *exec.Cmd {
	program, args := h.Wrap(os.Args[0])
	command := exec.Command(program, args...)
	command.Env = append(os.Environ(), roleVariable+"="+role)
	return command
}

// startEcho starts an echo server that the test ends.
func startEcho(t *testing.T, h *Host) string {
	t.Helper()
	address := net.JoinHostPort(h.Address().String(), "9000")
	command := h.run("echo " + address)
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = command.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "listening\n" {
		t.Fatalf("echo server: %q, %v", line, err)
	}
	return address
}

func pingFrom(t *testing.T, h *Host, address string) string {
	t.Helper()
	out, err := h.run("ping " + address).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestDelayAndCut(t *testing.T) {
	lab := newLab(t)
	a := add(t, lab.Add, Link{Delay: 40 * time.Millisecond})
	b := add(t, lab.Add, Link{Delay: 20 * time.Millisecond})
	address := startEcho(t, b)
	took, err := time.ParseDuration(pingFrom(t, a, address))
	if err != nil || took < 60*time.Millisecond {
		t.Errorf("the round trip took %v (%v), want at least 60ms", took, err)
	}
	b.Cut(true)
	if answer := pingFrom(t, a, address); answer != "none" {
		t.Errorf("a disconnected host answered after %s", answer)
	}
	b.Cut(false)
	if answer := pingFrom(t, a, address); answer == "none" {
		t.Error("no answer after the host was reconnected")
	}
	if sent := a.Traffic(); sent.Packets < 3 || sent.Lost < 1 {
		t.Errorf("traffic %+v, want three packets and a lost one", sent)
	}
}

func TestGuardedHostIsReachableOnlyForItsContacts(t *testing.T) {
	lab := newLab(t)
	open, guarded := add(t, lab.Add, Link{}), add(t, lab.AddGuarded, Link{})
	if answer := pingFrom(t, open, startEcho(t, guarded)); answer != "none" {
		t.Errorf("a guarded host was reached: %s", answer)
	}
	if answer := pingFrom(t, guarded, startEcho(t, open)); answer == "none" {
		t.Error("a guarded host got no answer")
	}
}

func TestUplink(t *testing.T) {
	now := time.Unix(0, 0)
	t.Run("rate", func(t *testing.T) {
		u := newUplink(Link{Rate: 8000, Delay: time.Second}, 1, 1) // 1,000 bytes a second
		u.take(now, make([]byte, 500))
		u.take(now, make([]byte, 500))
		for _, want := range []time.Duration{1500 * time.Millisecond, 2 * time.Second} {
			if p := <-u.waiting; p.at.Sub(now) != want {
				t.Errorf("arrives after %v, want %v", p.at.Sub(now), want)
			}
		}
	})
	t.Run("queue is bounded", func(t *testing.T) {
		u := newUplink(Link{Rate: 8000}, 1, 1)
		for range 1000 {
			u.take(now, make([]byte, 1000))
		}
		if kept := len(u.waiting); kept < maxQueue/1000 || kept > maxQueue/1000+2 {
			t.Errorf("%d packets of 1000 bytes wait, want about %d", kept, maxQueue/1000)
		}
	})
	t.Run("queue of a long fast link", func(t *testing.T) {
		u := newUplink(Link{Rate: 20e6, Delay: 100 * time.Millisecond}, 1, 1) // 500,000 bytes in each direction
		for range 1000 {
			u.take(now, make([]byte, 1000))
		}
		if kept := len(u.waiting); kept < 500 || kept > 502 {
			t.Errorf("%d packets of 1000 bytes wait, want about 500", kept)
		}
	})
	t.Run("loss", func(t *testing.T) {
		u := newUplink(Link{LossPerMille: 100}, 1, 1)
		for range 4000 {
			u.take(now, nil)
		}
		if lost := u.traffic().Lost; lost < 320 || lost > 480 {
			t.Errorf("lost %d of 4000, want about 400", lost)
		}
	})
}

// datagram is an IPv4 packet of a given size from a port.
func datagram(port, size int) []byte {
	b := make([]byte, size)
	b[0], b[9] = 0x45, 17
	b[20], b[21] = byte(port>>8), byte(port)
	return b
}

// TestFIFOQueueHoldsASecond fills a queue of one second: a later packet waits for a second, and
// further packets are lost.
func TestFIFOQueueHoldsASecond(t *testing.T) {
	now := time.Unix(0, 0)
	u := newUplink(Link{Rate: 8_000_000, Buffer: time.Second}, 1, 1) // 1,000 packets of 1,000 bytes in a second
	for range 1500 {
		u.take(now, datagram(1, 1000))
	}
	if kept := len(u.waiting); kept < 1000 || kept > 1002 {
		t.Errorf("%d packets wait, want 1000", kept)
	}
	u.take(now.Add(time.Second/2), datagram(2, 100))
	var last packet
	for len(u.waiting) > 0 {
		last = <-u.waiting
	}
	if late := last.at.Sub(now); late < time.Second || late > 1010*time.Millisecond {
		t.Errorf("a packet in a full queue leaves after %v, want a second", late)
	}
}

// leaves takes all packets from a fair queue, and returns when the last packet of each port left.
func leaves(q *fairQueue, now time.Time) (last map[int]time.Duration, bytes map[int]int, lost int64) {
	last, bytes = make(map[int]time.Duration), make(map[int]int)
	for clock := now; ; {
		p, at, dropped, ok := q.next(clock)
		lost += dropped
		if !ok {
			return last, bytes, lost
		}
		port := int(p.data[20])<<8 | int(p.data[21])
		last[port], bytes[port], clock = at.Sub(now), bytes[port]+len(p.data), at
	}
}

func TestFairQueue(t *testing.T) {
	now := time.Unix(0, 0)
	t.Run("a sparse flow passes a long one", func(t *testing.T) {
		q := newFairQueue(8_000_000, 1<<20)
		for range 500 {
			q.put(now, datagram(1, 1000))
		}
		q.put(now, datagram(2, 100))
		if last, _, _ := leaves(q, now); last[2] > 5*time.Millisecond {
			t.Errorf("it leaves after %v", last[2])
		}
	})
	t.Run("flows get equal bytes", func(t *testing.T) {
		q := newFairQueue(8_000_000, 1<<20)
		for range 300 {
			q.put(now, datagram(1, 1400))
			q.put(now, datagram(2, 700))
			q.put(now, datagram(2, 700))
		}
		last, bytes, _ := leaves(q, now)
		if ratio := float64(bytes[1]) / float64(bytes[2]); ratio < 0.95 || ratio > 1.05 {
			t.Errorf("bytes of flows: %v", bytes)
		}
		if apart := last[1] - last[2]; apart < -20*time.Millisecond || apart > 20*time.Millisecond {
			t.Errorf("the flows end after %v", last)
		}
	})
}

func TestFairQueueLosesPackets(t *testing.T) {
	now := time.Unix(0, 0)
	t.Run("the longest flow loses", func(t *testing.T) {
		q := newFairQueue(8_000_000, 100_000)
		q.put(now, datagram(2, 1000))
		lost := int64(0)
		for range 200 {
			lost += q.put(now, datagram(1, 1000))
		}
		if _, bytes, _ := leaves(q, now); lost != 101 || bytes[2] != 1000 {
			t.Errorf("%d packets lost, want 101; %v", lost, bytes)
		}
	})
	t.Run("packets that wait long are lost", func(t *testing.T) {
		q := newFairQueue(8_000_000, 1<<20)
		for range 1000 {
			q.put(now, datagram(1, 1000))
		}
		if _, _, lost := leaves(q, now); lost < 5 || lost > 15 { // one packet in 100 ms during a second
			t.Errorf("%d packets lost", lost)
		}
	})
	t.Run("the rate holds", func(t *testing.T) {
		q := newFairQueue(8_000_000, 1<<20)
		for port := range 10 {
			for range 4 {
				q.put(now, datagram(port, 1000))
			}
		}
		last, _, _ := leaves(q, now)
		latest := time.Duration(0)
		for _, at := range last {
			latest = max(latest, at)
		}
		if latest != 40*time.Millisecond {
			t.Errorf("40 packets of a millisecond left in %v", latest)
		}
	})
}

// TestAsymmetricLink uses a host with slow download: the answer to a ping is late, although the
// upload is fast.
func TestAsymmetricLink(t *testing.T) {
	for name, queue := range map[string]Queue{"FIFO": FIFO, "fair": Fair} {
		t.Run(name, func(t *testing.T) {
			lab := newLab(t)
			a := add(t, lab.Add, Link{Rate: 100_000_000, Down: 2_000, Queue: queue}) // 33 bytes take 132 ms
			b := add(t, lab.Add, Link{})
			took, err := time.ParseDuration(pingFrom(t, a, startEcho(t, b)))
			if err != nil || took < 130*time.Millisecond {
				t.Errorf("the round trip took %v (%v), want at least 130ms", took, err)
			}
		})
	}
}
