package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnsupported means that this machine or user cannot make namespaces.
var ErrUnsupported = errors.New("cannot create network namespaces")

// mtu is the MTU of the hosts' devices.
const mtu = 1420

// Lab is a set of hosts that can reach only each other.
type Lab struct {
	seed  uint64
	name  string // prefix of the names of namespaces and devices
	mu    sync.Mutex
	hosts []*Host
	tasks sync.WaitGroup
	done  chan struct{}
}

// Host is a namespace with an address.
type Host struct {
	lab       *Lab
	namespace string // empty: this machine's
	address   netip.Addr
	device    *os.File
	up, down  *uplink
	guard     *firewall // nil: all packets are accepted
}

// New returns an empty lab. The seed determines which packets are lost.
func New(seed uint64) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: needs root", ErrUnsupported)
	}
	for _, need := range []string{"ip"} {
		if _, err := exec.LookPath(need); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
	}
	return &Lab{seed: seed, name: fmt.Sprintf("lab%d", os.Getpid()), done: make(chan struct{})}, nil
}

// Add adds a host whose packets leave through a link.
func (l *Lab) Add(link Link) (*Host, error) { return l.add(link, nil, true) }

// AddGuarded adds a host behind a firewall that accepts only answers.
func (l *Lab) AddGuarded(link Link) (*Host, error) {
	return l.add(link, &firewall{known: map[flow]bool{}}, true)
}

func (l *Lab) add(link Link, guard *firewall, apart bool) (*Host, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	number := len(l.hosts) + 1
	if number > 250 {
		return nil, errors.New("add host: a lab has at most 250 hosts")
	}
	h := &Host{
		lab: l, guard: guard,
		address: netip.AddrFrom4([4]byte{10, 77, 0, byte(number)}), up: newUplink(link, l.seed, uint64(number)), down: newDownlink(link),
	}
	name := fmt.Sprintf("tun%d-%d", os.Getpid()%100000, number)
	device, err := openTUN(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	h.device = device
	commands := []string{
		fmt.Sprintf("addr add %s/24 dev %s", h.address, name),
		fmt.Sprintf("link set %s mtu %d up", name, mtu),
	}
	if apart {
		h.namespace = fmt.Sprintf("%s-%d", l.name, number)
		within := "-n " + h.namespace + " "
		commands = []string{
			"netns add " + h.namespace, "link set " + name + " netns " + h.namespace, within + "link set lo up",
			within + commands[0], within + commands[1], within + "route add default dev " + name,
		}
	}
	for _, command := range commands {
		if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: ip %s: %w: %s", ErrUnsupported, command, err, strings.TrimSpace(string(out)))
			return nil, errors.Join(err, device.Close(), h.remove())
		}
	}
	l.hosts = append(l.hosts, h)
	l.tasks.Go(h.read)
	l.tasks.Go(func() { h.up.schedule(l.done) })
	l.tasks.Go(func() { h.up.deliver(l.done, l.forward) })
	if link.Down > 0 {
		l.tasks.Go(func() { h.down.schedule(l.done) })
		l.tasks.Go(func() { h.down.deliver(l.done, h.receive) })
	}
	return h, nil
}

// openTUN creates a TUN device and returns the file for its packets.
func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the TUN device %s: %w", name, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// read reads packets of the host until its device is closed.
func (h *Host) read() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := h.device.Read(buffer)
		if err != nil {
			return
		}
		data := append([]byte(nil), buffer[:n]...)
		if h.guard != nil {
			if w, ok := parse(data); ok {
				h.guard.sent(w)
			}
		}
		h.up.take(time.Now(), data)
	}
}

// receive passes a packet to the host.
func (h *Host) receive(data []byte) bool {
	_, err := h.device.Write(data)
	return err == nil
}

// forward passes a packet to its destination host.
func (l *Lab) forward(data []byte) bool {
	w, ok := parse(data)
	if !ok {
		return false
	}
	l.mu.Lock()
	var target *Host
	for _, h := range l.hosts {
		if h.address == w.to.Addr() {
			target = h
		}
	}
	l.mu.Unlock()
	if target == nil || target.up.cut.Load() || target.guard != nil && !target.guard.admits(w) {
		return false
	}
	if target.down.rate > 0 {
		target.down.take(time.Now(), data)
		return true
	}
	return target.receive(data)
}

// Address returns the host's address in the lab.
func (h *Host) Address() netip.Addr { return h.address }

// Wrap returns the program and arguments that run a program on the host. The started process is the
// program itself.
func (h *Host) Wrap(program string, args ...string) (string, []string) {
	if h.namespace == "" {
		return program, args
	}
	return "ip", append([]string{"netns", "exec", h.namespace, program}, args...)
}

// Cut disconnects the host from all other hosts, or reconnects it.
func (h *Host) Cut(severed bool) { h.up.cut.Store(severed) }

// Traffic returns the host's sent traffic so far.
func (h *Host) Traffic() Traffic { return h.up.traffic() }

// remove removes the namespace, and with it the device.
func (h *Host) remove() error {
	if h.namespace == "" {
		return nil
	}
	if out, err := exec.Command("ip", "netns", "del", h.namespace).CombinedOutput(); err != nil {
		return fmt.Errorf("remove namespace %s: %w: %s", h.namespace, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Close removes all hosts. The processes in them must have ended.
func (l *Lab) Close() error {
	l.mu.Lock()
	hosts := l.hosts
	l.mu.Unlock()
	close(l.done)
	var errs []error
	for _, h := range hosts {
		errs = append(errs, h.device.Close(), h.remove())
	}
	l.tasks.Wait()
	return errors.Join(errs...)
}
