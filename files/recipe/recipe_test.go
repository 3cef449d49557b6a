package recipe

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/config"
)

// example is a run of three friends with the small model, on the machine of the measurements.
func example() Request {
	return Request{
		Name: "poems", Host: "run.example.org", Port: 39407, Friends: 2, Link: 20, Hours: 1,
		Facts: Facts{Parameters: 2_307_840, MaxTokens: 1024, TokenSize: 2, Tokens: 20 << 20, Speed: 4150},
	}
}

// TestStateIsValid checks that all kinds of runs have a valid state.toml without warnings.
func TestStateIsValid(t *testing.T) {
	for _, change := range []func(*Request){
		func(*Request) {},
		func(r *Request) { r.Friends = 0 },
		func(r *Request) { r.Friends, r.Hours = MaxFriends, 100 },
		func(r *Request) { r.Link = 1000 },
		func(r *Request) { r.Link = 5 },
		func(r *Request) { r.Link = 0.25 },
		func(r *Request) { r.Hours = 0.001 },
		func(r *Request) { r.Hours = maxHours },
		func(r *Request) { r.Speed = 3 },
		func(r *Request) { r.Speed = 1e7 },
		func(r *Request) { r.Trained = true },
		func(r *Request) { r.Parameters, r.TokenSize = 8e9, 4 },
		func(r *Request) { r.Open, r.Friends = true, 7 },
		func(r *Request) { r.Open, r.Friends = true, 15 },
		func(r *Request) { r.Open, r.Friends, r.Link = true, 200, 1 },
		func(r *Request) { r.MaxTokens = 64 },
		func(r *Request) { r.Hub = "owner/name" },
		func(r *Request) { r.Host = Loopback },
	} {
		request := example()
		change(&request)
		made, err := Of(request)
		if err != nil {
			t.Errorf("%+v: %v", request, err)
			continue
		}
		text := made.StateTOML("A comment.")
		run, err := config.ParseState("state.toml", text)
		if err == nil {
			_, err = run.CoordinatorState(coordinator.ClientID{})
		}
		if err != nil || len(run.Warnings) > 0 {
			t.Errorf("%+v: %v %q\n%s", request, err, run.Warnings, text)
		}
		path := filepath.Join(t.TempDir(), "data.toml")
		if err := os.WriteFile(path, made.DataTOML("data"), 0o600); err != nil {
			t.Fatal(err)
		}
		data, err := config.LoadDataServer(path)
		if err != nil || data.SeqLen != run.Model.MaxSeqLen {
			t.Errorf("data.toml: %v, seq_len %d", err, data.SeqLen)
		}
	}
}

// TestTable checks the values that depend on the request.
func TestTable(t *testing.T) {
	value := func(request Request, key string) any {
		made, err := Of(request)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range made.Choices {
			if c.Key == key {
				return c.Value
			}
		}
		return nil
	}
	with := func(change func(*Request)) Request {
		r := example()
		change(&r)
		return r
	}
	link := func(speed Mbits) Request { return with(func(r *Request) { r.Link = speed }) }
	open := func(friends int) Request { return with(func(r *Request) { r.Open, r.Friends = true, friends }) }
	for _, test := range []struct {
		name    string
		request Request
		key     string
		want    any
	}{
		{"a fast link", link(100), "inner_steps", 4},
		{"a fast link", link(100), "global_batch_size_start", 12},
		{"a fast link", link(100), "apply_lag", 1},
		{"20 Mbit/s", link(20), "inner_steps", 12},
		{"20 Mbit/s begins with 4 steps", link(20), "global_batch_size_start", 12},
		{"20 Mbit/s", link(20), "global_batch_size_end", 36},
		{"5 Mbit/s", link(5), "apply_lag", 2},
		{"a slow link", link(1), "inner_steps", 24},
		{"friends begin alone", link(20), "init_min_clients", 1},
		{"friends need no audits", link(20), "verification_percent", 0},
		{"friends need no probation", link(20), "probation_steps", 0},
		{"strangers audit each other", open(7), "verification_percent", 50},
		{"16 strangers", open(23), "verification_percent", 25},
		{"16 strangers", open(23), "init_min_clients", 16},
		{"16 strangers send more often-missing coefficients", open(23), "compression_topk", 11},
		{"strangers have probation", open(7), "probation_steps", 8},
		{"strangers use DisTrO", open(7), "inner_steps", nil},
		{"random weights", link(20), "base_lr", 1e-3},
		{"a trained model", with(func(r *Request) { r.Trained = true }), "base_lr", 1e-4},
	} {
		if got := value(test.request, test.key); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %s is %v, want %v", test.name, test.key, got, test.want)
		}
	}
	short, long := value(with(func(r *Request) { r.Hours = 1 }), "total_steps").(int), value(with(func(r *Request) { r.Hours = 8 }), "total_steps").(int)
	if long < 7*short {
		t.Errorf("8 hours have %d rounds, 1 hour has %d", long, short)
	}
}

func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Request)
		want   error
	}{
		{"a long name", func(r *Request) { r.Name = strings.Repeat("long", 20) }, ErrRequest},
		{"negative friends", func(r *Request) { r.Friends = -1 }, ErrRequest},
		{"no hours", func(r *Request) { r.Hours = 0 }, ErrRequest},
		{"a slow link", func(r *Request) { r.Link = 0.1 }, ErrRequest},
		{"few strangers", func(r *Request) { r.Open, r.Friends = true, 3 }, ErrRequest},
		{"no speed", func(r *Request) { r.Speed = 0 }, ErrRequest},
		{"three lines of text", func(r *Request) { r.Tokens = 120 }, ErrText},
	} {
		request := example()
		test.change(&request)
		_, err := Of(request)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
		golden.Message(t, test.name, err)
	}
}

// TestReasons checks that each value has a reason, and that no key occurs twice in a section.
func TestReasons(t *testing.T) {
	made, err := Of(example())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range made.Choices {
		if len(c.Reason) < 10 {
			t.Errorf("%s has the reason %q", c.Key, c.Reason)
		}
		if name := c.Section + "." + c.Key; seen[name] && !strings.HasPrefix(c.Section, "[") {
			t.Errorf("%s occurs twice", name)
		} else {
			seen[name] = true
		}
	}
}

// TestSizes checks that the sizes are the measured models.
func TestSizes(t *testing.T) {
	for name, file := range map[string]string{"small": "configs/quickstart/model.json", "medium": "proof/bench/peers/20m/model.json"} {
		size, found := SizeOf(name)
		text, err := size.Config(256)
		if !found || err != nil {
			t.Fatal(name, err)
		}
		measured, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		var got, want map[string]any
		if err := errors.Join(json.Unmarshal(text, &got), json.Unmarshal(measured, &want)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, %s is %v", name, got, file, want)
		}
	}
	if small, _ := SizeOf("small"); small.Parameters(256) != 2_307_840 {
		t.Errorf("small has %d parameters", small.Parameters(256))
	}
}

func TestMbits(t *testing.T) {
	for text, want := range map[string]Mbits{"20mbit": 20, "20": 20, "1gbit": 1000, "500kbit": 0.5, "2.5 Mbit/s": 2.5} {
		var m Mbits
		if err := m.UnmarshalText([]byte(text)); err != nil || m != want {
			t.Errorf("%q: %v, %v; want %v", text, m, err, want)
		}
	}
	for _, text := range []string{"", "fast", "20mb", "nan"} {
		var m Mbits
		if err := m.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, m)
		}
	}
}
