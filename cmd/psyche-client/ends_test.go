package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
)

// TestEndTokens reads generation_config.json as transformers does; files that do not parse are errors.
func TestEndTokens(t *testing.T) {
	for _, c := range []struct {
		generation string
		want       []int32
		problem    string // "": none
	}{
		{`{"eos_token_id":98,"temperature":NaN}`, []int32{98}, ""},
		{`{"a":-Infinity,"b":[Infinity,NaN],"eos_token_id":[98, 7]}`, []int32{98, 7}, ""},
		{`{"a":"NaN \" NaN \\","eos_token_id":5,"-Infinity":"Infinity"}`, []int32{5}, ""},
		{`{"temperature":1}`, []int32{1}, ""},
		{`{"eos_token_id":null}`, []int32{1}, ""},
		{`{"eos_token_id":[]}`, []int32{1}, ""},
		{"{\n  \"do_sample\": true.\n  \"eos_token_id\": 98\n}\n", nil, "is not JSON: invalid character '.'"},
		{`{"eos_token_id":"98"}`, nil, `eos_token_id is "98", want the id of a token`},
		{"\ufeff" + `{"eos_token_id":98}`, nil, "byte order mark"},
		{"\xff\xfe{\x00}\x00", nil, "file is UTF-16"},
		{"{\x00}\x00", nil, "UTF-16 without a byte order mark"},
		{"version https://git-lfs.github.com/spec/v1\n", nil, "git lfs pull"},
		{`{"eos_token_id":-1}`, nil, "eos_token_id is -1"},
		{`{"eos_token_id":[98,-5]}`, nil, "eos_token_id is [98,-5]"},
		{`{"eos_token_id":true}`, nil, "eos_token_id is true"},
		{"  ", nil, "is not JSON"},
		{`[]`, nil, "want a JSON object, not array"},
		{`null`, nil, "want a JSON object, not null"},
		{``, nil, "is not JSON"},
		{`{"eos_token_id":98,}`, nil, "is not JSON"},
		{`{"eos_token_id":NaN}`, nil, `eos_token_id is NaN`},
		{`{"eos_token_id":98.5}`, nil, "eos_token_id is 98.5"},
		{`{"eos_token_id":4294967296}`, nil, "eos_token_id is 4294967296"},
		{`{"eos_token_id":[98,null]}`, nil, "no null"},
		{`{"eos_token_id":{"id":98}}`, nil, "want the id of a token"},
		{`{"eos_token_id":98, "a": NaNs}`, nil, "is not JSON"},
		{`{"eos_token_id":98, "a": "b`, nil, "is not JSON"},
		{`{"eos_token_id":98, "a": "\`, nil, "is not JSON"},
	} {
		s := checkpoint.Snapshot{Files: []checkpoint.File{
			{Name: checkpoint.ConfigFile, Data: []byte(`{"eos_token_id":1}`)}, {Name: generationFile, Data: []byte(c.generation)},
		}}
		ids, err := endTokens(s)
		switch {
		case c.problem == "" && (err != nil || !slices.Equal(ids, c.want)):
			t.Errorf("%s: %v, %v; want %v", c.generation, ids, err, c.want)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem) || !strings.HasPrefix(err.Error(), generationFile)):
			t.Errorf("%s: %v, %v; want an error with %q", c.generation, ids, err, c.problem)
		}
	}
	begin, err := beginToken(checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(`{"bos_token_id":"2"}`)}}})
	if err == nil || !strings.Contains(err.Error(), "config.json: bos_token_id") {
		t.Errorf("bos_token_id of a string: %v, %v", begin, err)
	}
}

// TestGenerateNamesAWrongFile wants commands to name the file before they load libtorch.
func TestGenerateNamesAWrongFile(t *testing.T) {
	model, _ := toy(t)
	write(t, filepath.Join(model, generationFile), []byte(`{"do_sample": true.}`))
	for _, line := range [][]string{
		{"generate", "--model", model, "--prompt", "a"},
		{"serve-model", "--model", model, "--http-addr", "127.0.0.1:0"},
	} {
		fail(t, exitFailure, model+": "+generationFile+" is not JSON", line...)
	}
}
