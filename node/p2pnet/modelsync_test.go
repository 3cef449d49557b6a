package p2pnet_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/net/p2p"
	"github.com/psyche-go/psyche/net/p2p/blob"
	"github.com/psyche-go/psyche/net/p2p/p2ptest"
	"github.com/psyche-go/psyche/node/p2pnet"
	"golang.org/x/sync/errgroup"
)

const partsAtOnce = 8 // as in the client's defaults

// modelOf returns a model of the given size in MiB, with large and small tensors.
func modelOf(mib int) checkpoint.Snapshot {
	random := mathrand.NewChaCha8([32]byte{1})
	s := checkpoint.Snapshot{Files: []checkpoint.File{{Name: "config.json", Data: []byte(`{}`)}}}
	add := func(name string, size int) {
		data := make([]byte, size)
		_, _ = random.Read(data)
		s.Tensors = append(s.Tensors, safetensors.Tensor{Name: name, DType: "U8", Shape: []int64{int64(size)}, Data: data})
	}
	add("embedding", mib<<20/4)
	for left, i := mib<<20*3/4, 0; left > 0; i++ {
		size := min([]int{8 << 20, 2 << 20, 4 << 10}[i%3], left)
		add("layer."+string(rune('a'+i/26))+string(rune('a'+i%26)), size)
		left -= size
	}
	return s
}

func sizeOf(parts []checkpoint.Blob) (total int64) {
	for _, part := range parts {
		total += int64(part.Size)
	}
	return total
}

// share makes n hold and serve the model.
func share(t testing.TB, n *p2p.Node, store *blob.Store, s checkpoint.Snapshot) *p2pnet.Network {
	t.Helper()
	network := p2pnet.New(n, store, "run")
	for _, file := range s.Files {
		if _, err := network.Put(file.Data); err != nil {
			t.Fatal(err)
		}
	}
	for _, tensor := range s.Tensors {
		if _, err := network.Put(tensor.Data); err != nil {
			t.Fatal(err)
		}
	}
	return network
}

// syncModel fetches all parts of a model like a client that joins.
func syncModel(ctx context.Context, network *p2pnet.Network, parts []checkpoint.Blob, holders []identity.ID) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(partsAtOnce)
	for _, part := range parts {
		tasks.Go(func() error {
			_, err := network.Fetch(ctx, part.Hash, part.Size, holders)
			return err
		})
	}
	return tasks.Wait()
}

// BenchmarkModelSync compares the transfer of a model of 200 MB from three members with one plain
// copy of the same bytes over TLS 1.3, alternately on the same machine.
func BenchmarkModelSync(b *testing.B) {
	for _, where := range []string{"memory", "disk"} {
		b.Run(where, func(b *testing.B) {
			model := modelOf(200)
			parts := model.Manifest().Blobs()
			total := sizeOf(parts)
			nodes := p2ptest.New(b, "joiner", "a", "b", "c")
			open := func() *blob.Store {
				options := blob.Options{MaxMemory: 1 << 30, MaxDisk: 1 << 30}
				if where == "disk" {
					options.Dir = b.TempDir()
				}
				store, err := blob.OpenStore(options)
				if err != nil {
					b.Fatal(err)
				}
				return store
			}
			for _, n := range nodes[1:] {
				store := open()
				defer func() { _ = store.Close() }()
				share(b, n, store, model)
			}
			var plain, synced cost
			b.SetBytes(total)
			for b.Loop() {
				b.StopTimer()
				store := open()
				network := p2pnet.New(nodes[0], store, "run")
				begun := now()
				copyOverTLS(b, model)
				plain.add(begun)
				b.StartTimer()
				begun = now()
				if err := syncModel(b.Context(), network, parts, p2ptest.IDs(nodes[1:]...)); err != nil {
					b.Fatal(err)
				}
				synced.add(begun)
				b.StopTimer()
				_ = store.Close()
				b.StartTimer()
			}
			b.ReportMetric(100*float64(plain.wall)/float64(synced.wall), "%ofTLS")
			b.ReportMetric(float64(synced.cpu)/float64(plain.cpu), "CPU/TLS-CPU")
			b.ReportMetric(float64(total)*float64(b.N)/plain.wall.Seconds()/1e6, "TLS-MB/s")
		})
	}
}

// cost contains the duration of an operation, and its CPU time on all processors. Other work on the
// machine changes the CPU time less than the duration.
type cost struct{ wall, cpu time.Duration }

func now() cost {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return cost{time.Duration(time.Now().UnixNano()), time.Duration(usage.Utime.Nano() + usage.Stime.Nano())}
}

func (c *cost) add(since cost) {
	n := now()
	c.wall += n.wall - since.wall
	c.cpu += n.cpu - since.cpu
}

// copyOverTLS sends every tensor over a new TLS 1.3 connection into new memory.
func copyOverTLS(t testing.TB, s checkpoint.Snapshot) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var tasks errgroup.Group
	tasks.Go(func() error {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		for _, tensor := range s.Tensors {
			if _, err := conn.Write(tensor.Data); err != nil {
				return err
			}
		}
		return conn.Close()
	})
	conn, err := (&tls.Dialer{
		NetDialer: &net.Dialer{Timeout: p2ptest.Wait},
		Config:    &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}, // only the speed matters
	}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range s.Tensors {
		if _, err := io.ReadFull(conn, make([]byte, len(tensor.Data))); err != nil {
			t.Fatal(err)
		}
	}
	_ = conn.Close()
	if err := tasks.Wait(); err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
}
