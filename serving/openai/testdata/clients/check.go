// Command clients runs the examples of clients in Go against the servers that its argument names,
// and prints the calls that it made.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
)

// given are the servers: the embedded model and its key, and models that say one text each.
var given struct{ API, Key, Prompt, Caller, Required, Recipe, Computer string }

var calls []string

func main() {
	must(json.Unmarshal([]byte(os.Args[1]), &given))
	official()
	community()
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{"calls": calls}))
}

func call(name string) { calls = append(calls, name) }

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("%s: %v", calls[len(calls)-1:], err))
	}
}

func same(name string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		panic(fmt.Sprintf("%s: %v, want %v", name, got, want))
	}
}

// arguments reads the arguments of a call.
func arguments(text string) (args map[string]any) {
	must(json.Unmarshal([]byte(text), &args))
	return args
}

var (
	rome  = map[string]any{"city": "Rome", "days": 2.0}
	noted = map[string]any{"text": "a é", "done": true}
)

// computer is the type of a structured output. Its fields are sorted, as go-openai sorts them:
// objects have the order of the schema.
type computer struct {
	Name         string   `json:"full_name" jsonschema_description:"The name of the device model"`
	Legacy       string   `json:"legacy" jsonschema:"enum=positive,enum=neutral,enum=negative" jsonschema_description:"Its influence on the field of computing"`
	NotableFacts []string `json:"notable_facts" jsonschema_description:"A few key facts about the computer"`
	Origin       origin   `json:"origin" jsonschema_description:"The origin of the computer"`
}

type origin struct {
	Organization string `json:"organization" jsonschema_description:"The organization that was in charge of its development"`
	YearBuilt    int64  `json:"year_of_construction" jsonschema_description:"The year it was made"`
}

var markI = computer{"Mark I", "positive", []string{"It could see.", "It learned."}, origin{"Cornell", 1958}}
