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
		t.Errorf("there and back took %v (%v), want at least 60ms", took, err)
	}
	b.Cut(true)
	if answer := pingFrom(t, a, address); answer != "none" {
		t.Errorf("a host that is cut off answered after %s", answer)
	}
	b.Cut(false)
	if answer := pingFrom(t, a, address); answer == "none" {
		t.Error("no answer after the cut was mended")
	}
	if sent := a.Traffic(); sent.Packets < 3 || sent.Lost < 1 {
		t.Errorf("traffic %+v, want three packets and a lost one", sent)
	}
}

func TestGuardedHostIsReachedByNobodyItDidNotWriteTo(t *testing.T) {
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
		u := newUplink(Link{Rate: 20e6, Delay: 100 * time.Millisecond}, 1, 1) // 500,000 bytes there and back
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
