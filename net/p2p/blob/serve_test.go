package blob

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"lukechampine.com/blake3"
	"lukechampine.com/blake3/bao"
)

// FuzzRequest checks that every request gets a verifiable range or nothing.
func FuzzRequest(f *testing.F) {
	data := payload(3*groupSize + 100)
	hash := Hash(blake3.Sum256(data))
	store := holding(data, nil)
	f.Add(request{hash, 0, uint64(len(data))}.encode())
	f.Add(request{hash, groupSize, groupSize}.encode())
	f.Add(request{hash, 3 * groupSize, 100}.encode())
	f.Add(request{hash, probeOffset, 0}.encode())
	f.Add(request{emptyHash, probeOffset, 0}.encode())
	f.Add(request{hash, 1<<64 - groupSize, groupSize}.encode())
	f.Add([]byte("short"))
	fuzztest.Run(f, func(t *testing.T, raw []byte) {
		var answer bytes.Buffer
		err := store.serve(bytes.NewReader(raw), &answer)
		if err != nil {
			if answer.Len() != 0 {
				t.Fatalf("%d bytes and error %v", answer.Len(), err)
			}
			return
		}
		if answer.Bytes()[0] != statusOK {
			return
		}
		r, err := decodeRequest(raw[:requestSize])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(r.encode(), raw[:requestSize]) {
			t.Fatal("two encodings of one request")
		}
		if r.hash == emptyHash {
			return
		}
		part, ok := r.within(uint64(len(data)))
		if !ok {
			t.Fatalf("range %+v got an answer", r)
		}
		slice, err := asBao(answer.Bytes()[1:], part)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := bao.VerifySlice(slice, group, part.offset, part.length, r.hash)
		if !ok || !bytes.Equal(got, data[part.offset:part.end()]) {
			t.Fatalf("range %+v is invalid", r)
		}
	})
}

// asBao converts a slice to the format of Bao, in which the parents are between the groups.
func asBao(slice []byte, part span) ([]byte, error) {
	size := binary.LittleEndian.Uint64(slice)
	bao, parents := slices.Clone(slice[:8]), slice[8:]
	at := 8 + pairSize*parentsOf(part, 0, size)
	if uint64(len(slice)) != uint64(at)+part.length {
		return nil, fmt.Errorf("a slice of %d bytes", len(slice))
	}
	data := slice[at:]
	var subtree func(pos, n uint64)
	subtree = func(pos, n uint64) {
		switch {
		case pos >= part.end() || pos+n <= part.offset:
		case n <= groupSize:
			bao, data = append(bao, data[:n]...), data[n:]
		default:
			bao, parents = append(bao, parents[:pairSize]...), parents[pairSize:]
			subtree(pos, half(n))
			subtree(pos+half(n), n-half(n))
		}
	}
	subtree(0, size)
	return bao, nil
}
