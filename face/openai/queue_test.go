package openai

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// from returns a client that sends requests from a different address of this machine.
func from(t *testing.T, address string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// TestOneAddressOfMany checks that while one address has taken all slots, a client from a different
// address gets the next answer.
func TestOneAddressOfMany(t *testing.T) {
	tokens, began, release, _ := blocked()
	url := start(t, described(t, tokens), Limits{Running: 1, Waiting: 4, Time: limits.Time}, "")
	send := func(address, prompt string) chan string {
		client, done := from(t, address), make(chan string, 1)
		go func() {
			r, err := client.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"model":"toy","prompt":"`+prompt+`"}`))
			if err != nil {
				done <- err.Error()
				return
			}
			_ = r.Body.Close()
			done <- r.Status[:3]
		}()
		return done
	}
	many := []chan string{send("127.0.0.1", "a")}
	<-began
	for i := range 4 {
		many = append(many, send("127.0.0.1", "a"))
		inTheQueue(t, url, 1, i+1)
	}
	if status := <-send("127.0.0.1", "a"); status != "429" {
		t.Fatalf("the sixth of one address got %s", status)
	}
	one := send("127.0.0.2", "b")
	if status := <-many[4]; status != "429" {
		t.Errorf("the newest waiting request of the address with five slots got %s, want 429", status)
	}
	release <- struct{}{}
	if status := <-many[0]; status != "200" {
		t.Errorf("the running request got %s", status)
	}
	<-began
	release <- struct{}{}
	if status := <-one; status != "200" {
		t.Errorf("the request of a different address got %s", status)
	}
	close(release)
	for _, answered := range many[1:4] {
		if status := <-answered; status != "200" {
			t.Errorf("a waiting request got %s", status)
		}
	}
	inTheQueue(t, url, 0, 0)
}

// TestLargeRequests checks that a large request waits while a large request is encoded, and that
// small requests do not wait.
func TestLargeRequests(t *testing.T) {
	m := described(t, says("a"))
	m.Context = 2 * largeBody
	s, err := New(m, Limits{Running: 2, Waiting: 4, Time: limits.Time}, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	s.large <- struct{}{}
	large := make(chan int, 1)
	go func() {
		r, err := http.Post(web.URL+"/v1/completions", "application/json", strings.NewReader(`{"model":"toy","prompt":"`+strings.Repeat("a", largeBody)+`"}`))
		if err != nil {
			large <- 0
			return
		}
		_ = r.Body.Close()
		large <- r.StatusCode
	}()
	inTheQueue(t, web.URL, 0, 1)
	if r := ask(t, "POST", web.URL+"/v1/chat/completions", `{`+hello+`}`); r.StatusCode != http.StatusOK {
		t.Errorf("a small request got %d", r.StatusCode)
	}
	select {
	case status := <-large:
		t.Fatalf("a large request did not wait, and got %d", status)
	default:
	}
	<-s.large
	if status := <-large; status != http.StatusOK {
		t.Errorf("a large request got %d", status)
	}
}

// TestRepeatedRequestsDoNotStarveAnAddress checks that addresses that repeat their requests
// immediately do not starve an address with several requests.
func TestRepeatedRequestsDoNotStarveAnAddress(t *testing.T) {
	q := newQueue(1, 16)
	enter := func(host byte) *turn {
		turn := q.enter(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, host}), 32), func() {})
		q.await(turn)
		return turn
	}
	two := []*turn{enter(1), enter(1)}
	others := []*turn{enter(2), enter(3), enter(4)}
	q.leave(two[0])
	for range 2 * len(others) {
		if two[1].runs {
			return
		}
		i := slices.IndexFunc(others, func(t *turn) bool { return t.runs })
		if i < 0 {
			t.Fatal("no request has a turn")
		}
		q.leave(others[i])
		others[i] = enter(byte(2 + i))
	}
	t.Errorf("the second request of an address waits, although each of %d other addresses had two turns", len(others))
}

// TestQueueShares checks four rules for any order of requests: no more requests run and wait than
// the limits allow; no request waits while a slot is free; no running request is evicted; and no
// address is evicted for an address that has as many requests.
func TestQueueShares(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		q := newQueue(rapid.IntRange(1, 3).Draw(r, "running"), rapid.IntRange(0, 4).Draw(r, "waiting"))
		var here []*turn
		evicted, given := 0, 0 // calls of the evict function, and requests that lost their slots
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			switch i := rapid.IntRange(0, 2*q.slots).Draw(r, "what"); {
			case i < len(here) && here[i].ready:
				q.leave(here[i])
				here = slices.Delete(here, i, i+1)
			case i < len(here):
				q.await(here[i])
			default:
				address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(1, 3).Draw(r, "address"))}), 32)
				had := q.count(address)
				mine := q.enter(address, func() { evicted++ })
				gone := slices.IndexFunc(here, func(t *turn) bool { return !slices.Contains(q.all, t) })
				if gone >= 0 {
					if v := here[gone]; v.runs || mine == nil || q.count(v.from) <= had {
						r.Fatalf("%+v was evicted for an address with %d", v, had)
					}
					here, given = slices.Delete(here, gone, gone+1), given+1
				}
				if mine != nil {
					here = append(here, mine)
				}
			}
			running, waiting := q.counts()
			ready := 0
			for _, t := range here {
				if t.ready && !t.runs {
					ready++
				}
			}
			if evicted != given || running > q.running || running+waiting > q.slots || running+waiting != len(here) || ready > 0 && running < q.running {
				r.Fatalf("%d run and %d wait, of %d, %d of them ready", running, waiting, len(here), ready)
			}
		}
	})
}
