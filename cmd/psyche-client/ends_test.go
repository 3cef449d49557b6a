package main

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/checkpoint"
)

// TestEndTokens reads generation_config.json as transformers does; files that do not parse are errors.
func TestEndTokens(t *testing.T) {
	for _, c := range []struct {
		generation string
		want       []int32
		ok         bool
	}{
		{`{"eos_token_id":98,"temperature":NaN}`, []int32{98}, true},
		{`{"a":-Infinity,"b":[Infinity,NaN],"eos_token_id":[98, 7]}`, []int32{98, 7}, true},
		{`{"a":"NaN \" NaN \\","eos_token_id":5,"-Infinity":"Infinity"}`, []int32{5}, true},
		{`{"temperature":1}`, []int32{1}, true},
		{`{"eos_token_id":null}`, []int32{1}, true},
		{`{"eos_token_id":[]}`, []int32{1}, true},
		{"{\n  \"do_sample\": true.\n  \"eos_token_id\": 98\n}\n", nil, false},
		{`{"eos_token_id":"98"}`, nil, false},
		{"\ufeff" + `{"eos_token_id":98}`, nil, false},
		{"\xff\xfe{\x00}\x00", nil, false},
		{"{\x00}\x00", nil, false},
		{"version https://git-lfs.github.com/spec/v1\n", nil, false},
		{`{"eos_token_id":-1}`, nil, false},
		{`{"eos_token_id":[98,-5]}`, nil, false},
		{`{"eos_token_id":true}`, nil, false},
		{"  ", nil, false},
		{`[]`, nil, false},
		{`null`, nil, false},
		{``, nil, false},
		{`{"eos_token_id":98,}`, nil, false},
		{`{"eos_token_id":NaN}`, nil, false},
		{`{"eos_token_id":98.5}`, nil, false},
		{`{"eos_token_id":4294967296}`, nil, false},
		{`{"eos_token_id":[98,null]}`, nil, false},
		{`{"eos_token_id":{"id":98}}`, nil, false},
		{`{"eos_token_id":98, "a": NaNs}`, nil, false},
		{`{"eos_token_id":98, "a": "b`, nil, false},
		{`{"eos_token_id":98, "a": "\`, nil, false},
	} {
		s := checkpoint.Snapshot{Files: []checkpoint.File{
			{Name: checkpoint.ConfigFile, Data: []byte(`{"eos_token_id":1}`)}, {Name: generationFile, Data: []byte(c.generation)},
		}}
		ids, err := endTokens(s)
		if !c.ok {
			golden.Message(t, c.generation, err)
		} else if err != nil || !slices.Equal(ids, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.generation, ids, err, c.want)
		}
	}
	_, err := beginToken(checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(`{"bos_token_id":"2"}`)}}})
	golden.Message(t, "bos_token_id is a string", err)
}

// TestGenerateNamesAWrongFile wants commands to name the file before they load libtorch.
func TestGenerateNamesAWrongFile(t *testing.T) {
	model, _ := toy(t)
	write(t, filepath.Join(model, generationFile), []byte(`{"do_sample": true.}`))
	for _, line := range [][]string{
		{"generate", "--model", model, "--prompt", "a"},
		{"serve-model", "--model", model, "--http-addr", "127.0.0.1:0"},
	} {
		fail(t, exitFailure, line[0], line...)
	}
}
