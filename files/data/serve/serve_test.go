package serve_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/remote"
	"github.com/psyche-go/psyche/files/data/remote/message"
	"github.com/psyche-go/psyche/files/data/serve"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/files/objstore"
	"github.com/psyche-go/psyche/files/objstore/gcs"
	"github.com/psyche-go/psyche/files/objstore/gcs/fakegcs"
	"github.com/psyche-go/psyche/net/secure"
	"github.com/psyche-go/psyche/record/config"
)

const seqLen = 4

func key(n byte) identity.Key { return identity.FromSeed([identity.SeedSize]byte{n}) }

var serverKey = key(100)

// runHash names the run.
var runHash = [32]byte{1, 2}

// folder creates token files whose natural order differs from their byte order.
func folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, of := range map[string][2]int{"2.ds": {1000, 401}, "10.ds": {2000, 333}} {
		var raw []byte
		for i := range of[1] {
			raw = binary.LittleEndian.AppendUint16(raw, uint16(of[0]+i))
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var seeded = config.Shuffle{Seed: &[32]byte{1, 2, 3}}

func local(dir string) config.DataLocation {
	return config.DataLocation{Local: &config.LocalData{Path: dir, TokenSize: config.TwoBytes, Shuffle: seeded}}
}

func open(t testing.TB, o data.Options, locations ...config.DataLocation) data.Provider {
	t.Helper()
	o.SeqLen, o.Web.Inner = seqLen, true
	p, err := data.New(t.Context(), locations, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// state is a run of the clients with the keys 1 to members, with several rounds from a first round.
func state(members, first, rounds int) *coordinator.State {
	s := &coordinator.State{RunID: "run"}
	var ids []coordinator.ClientID
	for n := range members {
		id := coordinator.ClientID(key(byte(n + 1)).ID())
		ids = append(ids, id)
		s.Epoch.Clients = append(s.Epoch.Clients, coordinator.Client{ID: id})
	}
	for i := first; i < first+rounds; i++ {
		s.Epoch.Rounds = append(s.Epoch.Rounds, coordinator.Round{
			Step: uint32(i + 1), Seed: uint64(77 * i), DataIndex: uint64(12 * i), Position: uint64(12 * i), BatchSize: 12, Members: ids,
		})
		s.Progress.DataIndex = uint64(12 * (i + 1))
	}
	return s
}

// owned returns the batch of the client with key n in the newest round.
func owned(t testing.TB, s *coordinator.State, n byte) assign.BatchID {
	t.Helper()
	newest := s.Epoch.Rounds[len(s.Epoch.Rounds)-1]
	for _, a := range newest.Assignments(s.Config) {
		if newest.Members[a.Member] == coordinator.ClientID(key(n).ID()) {
			return a.Batch
		}
	}
	t.Fatalf("client %d has no batch", n)
	return assign.BatchID{}
}

// running is a server in the test.
type running struct {
	*serve.Server
	address string
	stop    func()
}

// start starts a server, which stops with the test at the latest.
func start(t testing.TB, source data.Provider, address string, change func(*serve.Options)) *running {
	t.Helper()
	return startOn(t, source, address, func(l net.Listener) net.Listener { return l }, change)
}

// startOn is start with a function that changes the listener.
func startOn(t testing.TB, source data.Provider, address string, on func(net.Listener) net.Listener, change func(*serve.Options)) *running {
	t.Helper()
	o := serve.Options{Key: serverKey, RunID: "run", Source: source, SeqLen: seqLen, StateWait: 100 * time.Millisecond}
	if change != nil {
		change(&o)
	}
	s, err := serve.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	for range 50 { // the port of a stopped server may not be free at once
		if listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp", address); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { s.Run(ctx, on(listener)) })
	r := &running{Server: s, address: listener.Addr().String(), stop: func() { cancel(); serving.Wait() }}
	t.Cleanup(r.stop)
	return r
}

func options(r *running, n byte) remote.Options {
	return remote.Options{
		Inner: true,
		Addr:  r.address, Trust: secure.Pin(serverKey.ID()), RunID: "run", Run: func() [32]byte { return runHash }, Key: key(n), SeqLen: seqLen,
		OpenTimeout: 300 * time.Millisecond, Timeout: 10 * time.Second,
	}
}

func connect(t testing.TB, o remote.Options) *remote.Client {
	t.Helper()
	c, err := remote.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// count returns the value of one of the server's counters.
func count(t testing.TB, r *running, name string, labels ...string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(r); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "psyche_data_"+name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var values []string
			for _, label := range metric.GetLabel() {
				values = append(values, label.GetValue())
			}
			if cmp.Equal(values, labels) || len(values) == 0 && len(labels) == 0 {
				return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// TestTheSameTokens reads the same batches from every kind of location, and through a data server
// for each location.
func TestTheSameTokens(t *testing.T) {
	dir := folder(t)
	bucket := fakegcs.New(t)
	t.Setenv("STORAGE_EMULATOR_HOST", bucket.Host)
	web := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(web.Close)
	for _, name := range []string{"2.ds", "10.ds"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		bucket.Set("public", "tokens/"+name, content)
	}
	o := data.Options{Bucket: func(ctx context.Context, name string) (objstore.Store, error) {
		return gcs.Open(ctx, name, gcs.Options{Pause: time.Millisecond})
	}}
	onWeb := func(at config.HTTPLocation) config.DataLocation {
		return config.DataLocation{HTTP: &config.HTTPData{Location: at, TokenSize: config.TwoBytes, Shuffle: seeded}}
	}
	reference := open(t, o, local(dir))
	s := state(3, 3, 4)
	for name, location := range map[string]config.DataLocation{
		"local": local(dir),
		"HTTP":  onWeb(config.HTTPLocation{URLs: []string{web.URL + "/2.ds", web.URL + "/10.ds"}}),
		"GCS":   onWeb(config.HTTPLocation{Gcp: &config.GcpBucket{BucketName: "public", FilterDirectory: "tokens"}}),
	} {
		t.Run(name, func(t *testing.T) {
			source := open(t, o, location)
			server := start(t, source, "127.0.0.1:0", nil)
			server.Update(s, runHash)
			for n := range byte(3) {
				c := connect(t, options(server, n+1))
				id := owned(t, s, n+1)
				want, err := reference.Batch(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				direct, err := source.Batch(t.Context(), id)
				if diff := cmp.Diff(want, direct); err != nil || diff != "" {
					t.Errorf("direct: %v (-want +got):\n%s", err, diff)
				}
				served, err := c.Batch(t.Context(), id)
				receipt := data.SignReceipt(serverKey, runHash, []assign.BatchID{id}, want.Hash())
				want.Receipt = &receipt
				if diff := cmp.Diff(want, served); err != nil || diff != "" {
					t.Errorf("served: %v (-want +got):\n%s", err, diff)
				}
				if hash, err := c.Fingerprint(t.Context(), id.Start); err != nil || hash != data.Fingerprint(want, 0) {
					t.Errorf("fingerprint: %x, %v", hash, err)
				}
				if c.Len() != reference.Len() {
					t.Errorf("%d sequences, want %d", c.Len(), reference.Len())
				}
			}
		})
	}
}

// memory is a source for tests.
type memory struct {
	batch func(id assign.BatchID) (data.Batch, error)
}

func (m memory) Batch(_ context.Context, id assign.BatchID) (data.Batch, error) { return m.batch(id) }
func (m memory) Len() uint64                                                    { return 1000 }
func (m memory) Close() error                                                   { return nil }

// samples returns a batch with labels and positions, of ids that need four bytes.
func samples(id assign.BatchID) (data.Batch, error) {
	b := data.Batch{ID: id}
	for i := id.Start; i < id.End; i++ {
		n := int32(i) + 70_000
		b.Sequences = append(b.Sequences, []int32{n, 1, 2})
		b.Labels = append(b.Labels, []int32{data.IgnoreLabel, 1, n})
		b.Positions = append(b.Positions, []int32{0, 0, 1})
	}
	return b, nil
}

func TestLabelsAndPositions(t *testing.T) {
	server := start(t, memory{samples}, "127.0.0.1:0", nil)
	s := state(2, 0, 1)
	server.Update(s, runHash)
	id := owned(t, s, 2)
	got, err := connect(t, options(server, 2)).Batch(t.Context(), id)
	want, _ := samples(id)
	receipt := data.SignReceipt(serverKey, runHash, []assign.BatchID{id}, want.Hash())
	want.Receipt = &receipt
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	o := options(server, 2)
	o.VocabSize = 70_000
	if _, err := connect(t, o).Batch(t.Context(), id); !errors.Is(err, tokens.ErrTokenRange) || !data.IsPermanent(err) {
		t.Errorf("with a different vocabulary: %v", err)
	}
}

// TestRefusals sends requests that no client may send.
func TestRefusals(t *testing.T) {
	server := start(t, open(t, data.Options{}, local(folder(t))), "127.0.0.1:0", nil)
	s := state(2, 0, 3)
	server.Update(s, runHash)
	c := connect(t, options(server, 1))
	for _, test := range []struct {
		id   assign.BatchID
		want message.Code
	}{
		{owned(t, s, 2), message.NotAssigned},
		{assign.BatchID{Start: 500, End: 600}, message.NotAssigned},
	} {
		_, err := c.Batch(t.Context(), test.id)
		if !message.Is(err, test.want) || data.IsPermanent(err) || !strings.Contains(err.Error(), test.want.String()) {
			t.Errorf("%v: %v", test.id, err)
		}
	}
	if _, err := c.Fingerprint(t.Context(), 500); !message.Is(err, message.NotTrained) {
		t.Errorf("fingerprint: %v", err)
	}
	if _, err := c.Batch(t.Context(), owned(t, s, 1)); err != nil { // the connection can still be used
		t.Error(err)
	}
	for range 9 {
		_, _ = c.Batch(t.Context(), owned(t, s, 1))
	}
	if _, err := c.Batch(t.Context(), owned(t, s, 1)); !message.Is(err, message.Repeated) {
		t.Errorf("the eleventh time: %v", err)
	}
	refused := func(name string, permanent bool, change func(*remote.Options), is func(error) bool) {
		o := options(server, 1)
		change(&o)
		_, err := remote.Open(t.Context(), o)
		if err == nil || data.IsPermanent(err) != permanent || !is(err) {
			t.Errorf("%s: got %v; want an error and data.IsPermanent(err) == permanent and is(err)", name, err)
		}
	}
	code := func(codes ...message.Code) func(error) bool {
		return func(err error) bool { return message.Is(err, codes...) }
	}
	refused("stranger", false, func(o *remote.Options) { o.Key = key(9) }, code(message.NotMember))
	refused("another run", true, func(o *remote.Options) { o.RunID = "other" }, code(message.WrongRun))
	refused("another server", true, func(o *remote.Options) { o.Trust = secure.Pin(key(9).ID()) },
		func(err error) bool { return errors.Is(err, secure.ErrWrongServer) })
	refused("other sequences", true, func(o *remote.Options) { o.SeqLen = 5 },
		func(err error) bool {
			return errors.Is(err, data.ErrUnusable) && strings.Contains(err.Error(), "max_seq_len")
		})
	for _, test := range []struct {
		labels []string
		want   float64
	}{
		{[]string{"samples", "not assigned"}, 2}, {[]string{"samples", "repeated"}, 1},
		{[]string{"fingerprint", "not trained"}, 1}, {[]string{"samples", "served"}, 10},
	} {
		if got := count(t, server, "requests_total", test.labels...); got != test.want {
			t.Errorf("%v were counted %v times, want %v", test.labels, got, test.want)
		}
	}
	if count(t, server, "connections_total", "not a member") == 0 || count(t, server, "connections_total", "wrong run") != 1 {
		t.Error("refused connections are not counted")
	}
}

// TestStatesThatComeLate requests a batch before the server knows that the client may have it.
func TestStatesThatComeLate(t *testing.T) {
	server := start(t, open(t, data.Options{}, local(folder(t))), "127.0.0.1:0", func(o *serve.Options) { o.StateWait = 20 * time.Second })
	opened := make(chan *remote.Client)
	go func() { opened <- connect(t, options(server, 1)) }()
	s := state(2, 0, 1)
	server.Update(&coordinator.State{RunID: "another", Epoch: s.Epoch}, runHash)
	server.Update(s, runHash)
	c := <-opened
	next := state(2, 1, 1)
	read := make(chan error)
	go func() {
		_, err := c.Batch(t.Context(), owned(t, next, 1))
		read <- err
	}()
	server.Update(next, runHash)
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	// A client that leaves is disconnected, and may connect again.
	left := state(2, 1, 1)
	left.Epoch.Clients[0].State = coordinator.Withdrawn
	server.Update(left, runHash)
	deadline := time.Now().Add(10 * time.Second)
	for count(t, server, "connections") > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the connection of a client that left is still open")
		}
		time.Sleep(time.Millisecond)
	}
	server.Update(next, runHash)
	if _, err := c.Batch(t.Context(), owned(t, next, 1)); err != nil {
		t.Error(err)
	}
}

// TestRestart stops the server and restarts it at the same address, also during a request for a
// batch.
func TestRestart(t *testing.T) {
	source := open(t, data.Options{}, local(folder(t)))
	server := start(t, source, "127.0.0.1:0", nil)
	s := state(1, 0, 1)
	server.Update(s, runHash)
	c := connect(t, options(server, 1))
	id := owned(t, s, 1)
	want, err := c.Batch(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	server.stop()
	read := make(chan data.Batch)
	go func() {
		got, err := c.Batch(t.Context(), id)
		if err != nil {
			t.Error(err)
		}
		read <- got
	}()
	server = start(t, source, server.address, nil)
	server.Update(s, runHash)
	if diff := cmp.Diff(want, <-read); diff != "" {
		t.Error(diff)
	}
	server.stop()
	server = start(t, source, server.address, nil)
	server.Update(s, runHash)
	if _, err := c.Batch(t.Context(), id); err != nil {
		t.Error(err)
	}
	server.stop()
	other := start(t, memory{samples}, server.address, nil) // other data
	other.Update(s, runHash)
	if _, err := c.Batch(t.Context(), id); !errors.Is(err, data.ErrOtherData) || !data.IsPermanent(err) {
		t.Errorf("other data: %v", err)
	}
}

// TestUnreachableServerIsATemporaryError checks that the client gives up in time, with a temporary
// error.
func TestUnreachableServerIsATemporaryError(t *testing.T) {
	server := start(t, memory{samples}, "127.0.0.1:0", nil)
	server.stop()
	o := options(server, 1)
	_, err := remote.Open(t.Context(), o)
	if err == nil || data.IsPermanent(err) || !strings.Contains(err.Error(), server.address) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	o.OpenTimeout = time.Hour
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := remote.Open(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestSourceFails distinguishes temporary from permanent errors.
func TestSourceFails(t *testing.T) {
	var mu sync.Mutex
	fails := errors.New("disk on fire in /secret/place")
	server := start(t, memory{func(id assign.BatchID) (data.Batch, error) {
		mu.Lock()
		defer mu.Unlock()
		if fails != nil {
			return data.Batch{}, fails
		}
		return samples(id)
	}}, "127.0.0.1:0", nil)
	s := state(1, 0, 1)
	server.Update(s, runHash)
	o := options(server, 1)
	o.Timeout = 200 * time.Millisecond
	c := connect(t, o)
	_, err := c.Batch(t.Context(), owned(t, s, 1))
	if !message.Is(err, message.Unavailable) || data.IsPermanent(err) || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	if err := server.Check(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("health: %v", err)
	}
	set := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		fails = err
	}
	set(nil)
	if _, err := c.Batch(t.Context(), owned(t, s, 1)); err != nil || server.Check() != nil {
		t.Errorf("afterwards: %v, %v", err, server.Check())
	}
	set(tokens.ErrChanged)
	if _, err := c.Batch(t.Context(), owned(t, s, 1)); !message.Is(err, message.BadData) || !data.IsPermanent(err) {
		t.Errorf("got %v; want message.Is(err, message.BadData) and data.IsPermanent(err)", err)
	}
}

// TestFallBack switches from a data server to a folder and back, and refuses different data.
func TestFallBack(t *testing.T) {
	dir := folder(t)
	source := open(t, data.Options{}, local(dir))
	server := start(t, source, "127.0.0.1:0", nil)
	s := state(1, 0, 1)
	server.Update(s, runHash)
	timeout := 200 * time.Millisecond // for a server that stops and does not come back
	o := data.Options{Server: func(ctx context.Context, at config.ServerData, o data.Options) (data.Provider, error) {
		to := options(server, 1)
		to.Addr, to.SeqLen, to.Timeout = at.Addr, o.SeqLen, timeout
		return remote.Open(ctx, to)
	}}
	at := config.DataLocation{Server: &config.ServerData{Addr: server.address}}
	p := open(t, o, at, local(dir))
	read := func(first int) error {
		s := state(1, first, 1)
		server.Update(s, runHash)
		id := owned(t, s, 1)
		want, err := source.Batch(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Batch(t.Context(), id)
		if err == nil {
			got.Receipt = nil
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		return err
	}
	for step := range 3 {
		if err := read(step); err != nil {
			t.Fatal(err)
		}
	}
	server.stop()
	for step := 3; step < 8; step++ {
		if err := read(step); err != nil {
			t.Fatal(err)
		}
	}
	// The reverse: the server takes over, and knows the sequences of rounds that it would no longer
	// deliver.
	server = start(t, source, "127.0.0.1:0", nil)
	server.Update(state(1, 8, 1), runHash)
	at.Server.Addr = server.address
	moved := t.TempDir()
	if err := os.CopyFS(moved, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	timeout = 0 // the usual timeout: no other location has the data then
	p = open(t, o, local(moved), at)
	for step := 1; step < 9; step++ {
		if err := read(step); err != nil {
			t.Fatal(err)
		}
		if step == 6 {
			for _, name := range []string{"2.ds", "10.ds"} {
				if err := os.Truncate(filepath.Join(moved, name), 0); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if served := count(t, server, "requests_total", "fingerprint", "served"); served != 4 {
		t.Errorf("%v fingerprints were compared, want 4", served)
	}
}
