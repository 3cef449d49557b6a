package blob

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestRetention(t *testing.T) {
	s := NewStore(1 << 20)
	a, b, c := s.PutTagged("1", []byte("a")), s.Put([]byte("b")), s.PutTagged("1", []byte("c"))
	if err := s.Retain(c, "2"); err != nil {
		t.Fatal(err)
	}
	held := func(h Hash) bool {
		_, ok := s.Get(h)
		return ok
	}
	s.DropTag("1")
	if held(a) || !held(b) || !held(c) {
		t.Error("dropping tag 1 must remove a alone")
	}
	s.DropTag("unknown")
	s.Drop(b)
	s.Drop(b)
	s.DropTag("2")
	if held(b) || held(c) {
		t.Error("b and c are still held")
	}
	if err := s.Retain(a, "3"); !errors.Is(err, ErrNotHeld) {
		t.Errorf("retain what is gone: %v", err)
	}
	if usage := s.Usage(); usage.Bytes != 0 || usage.Blobs != 0 || len(s.tags) != 0 || s.loose.Len() != 0 {
		t.Errorf("left behind %+v, %d tags, %d loose", usage, len(s.tags), s.loose.Len())
	}
}

func TestRoomIsMadeOldestFirst(t *testing.T) {
	s := NewStore(cost(100) * 3)
	kept := s.PutTagged("keep", bytes.Repeat([]byte{1}, 100))
	old, young := s.Put(bytes.Repeat([]byte{2}, 100)), s.Put(bytes.Repeat([]byte{3}, 100))
	if err := s.reserve(100); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Get(old); ok {
		t.Error("the oldest payload was not evicted")
	}
	for _, h := range []Hash{kept, young} {
		if _, ok := s.Get(h); !ok {
			t.Error("more than the oldest payload was evicted")
		}
	}
	if err := s.reserve(101); !errors.Is(err, ErrFull) {
		t.Errorf("reserve more than the limit: %v", err)
	}
	if _, ok := s.Get(young); !ok {
		t.Error("a reservation that cannot succeed evicts")
	}
	s.unreserve(100)
	for i := range 10 {
		s.PutTagged("own", bytes.Repeat([]byte{byte(i + 10)}, 100))
	}
	if usage := s.Usage(); usage.Blobs != 11 {
		t.Errorf("%d payloads, want the node's own 11", usage.Blobs)
	}
}

// Whatever is done, the accounts agree with the contents.
func TestStoreAccounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewStore(500)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			data := bytes.Repeat([]byte{rapid.ByteRange(0, 5).Draw(t, "data")}, rapid.IntRange(0, 60).Draw(t, "size"))
			tag := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "tag")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				s.Put(data)
			case 1:
				s.PutTagged(tag, data)
			case 2:
				_ = s.Retain(NewStore(0).Put(data), tag)
			case 3:
				s.Drop(NewStore(0).Put(data))
			case 4:
				s.DropTag(tag)
			case 5:
				if s.reserve(uint64(len(data))) == nil {
					s.keep(NewStore(0).Put(data), data)
				}
			}
			var total int64
			loose := 0
			for h, e := range s.blobs {
				total += cost(int64(len(e.data)))
				if len(e.tags) == 0 {
					loose++
				}
				for tag := range e.tags {
					if _, ok := s.tags[tag][h]; !ok {
						t.Fatal("tag without its payload")
					}
				}
				if (len(e.tags) == 0) != (e.loose != nil) {
					t.Fatal("loose and tagged at once, or neither")
				}
			}
			if total != s.used || loose != s.loose.Len() {
				t.Fatalf("used %d, counted %d; loose %d, counted %d", s.used, total, s.loose.Len(), loose)
			}
		}
	})
}
