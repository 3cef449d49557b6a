package p2p

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/record"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/psyche-go/psyche/base/fuzztest"
)

// FuzzOpenAnswer decodes peers' answers about the address of a member, and the records in them.
func FuzzOpenAnswer(f *testing.F) {
	var ids []peer.ID
	for range 2 {
		private, _, err := crypto.GenerateEd25519Key(rand.Reader)
		if err != nil {
			f.Fatal(err)
		}
		id, err := peer.IDFromPrivateKey(private)
		if err != nil {
			f.Fatal(err)
		}
		ids = append(ids, id)
		addr := ma.StringCast("/ip4/192.0.2.7/tcp/4001")
		envelope, err := record.Seal(&peer.PeerRecord{PeerID: id, Addrs: []ma.Multiaddr{addr}, Seq: 7}, private)
		if err != nil {
			f.Fatal(err)
		}
		raw, err := envelope.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(binary.BigEndian.AppendUint16(nil, uint16(len(raw))), raw...))
	}
	for _, raw := range [][]byte{nil, {0}, {0, 0}, {0, 1, 0}, {0xff, 0xff, 1}} {
		f.Add(raw)
	}
	fuzztest.Run(f, func(t *testing.T, response []byte) {
		for _, id := range ids {
			r, err := openAnswer(id, response)
			switch {
			case err != nil && !errors.Is(err, errRecord):
				t.Errorf("error %v", err)
			case err == nil && r.PeerID != id:
				t.Errorf("a record of %s for %s", r.PeerID, id)
			}
		}
	})
}
