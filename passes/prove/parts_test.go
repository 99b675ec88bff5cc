package prove

import (
	"strings"
	"testing"

	"github.com/krait-ml/krait/graph"
)

// overParts is a convolution and a scan over parts, before they are partitioned.
const overParts = `graph "g" stage=model ranks=1
input %seg : i32[s 3]
input %x : f32[t 8/1]
input %z : f32[t 8/1]
input %dt : f32[t 8/1]
input %B : f32[t 3]
param @w : f32[8/1 4] from "w"
param @A : f32[8/1 3] from "A"
param @A2 : f32[8/1 3] from "A2"
state %conv : f32[s 8/1 3]
state %h : f32[s 8/1 3]
%parts = parts %x %seg {parts=2} : i32[s*2 3]
%no_inputs = zeros %parts {dims="8/1 3"} : f32[s*2 8/1 3]
%c %tail = conv1d %x @w %no_inputs %parts : f32[t 8/1], f32[s*2 8/1 3]
%halo %conv_new = conv_states %tail %conv %seg : f32[s*2 8/1 3], f32[s 8/1 3]
%u %tail_again = conv1d %x @w %halo %parts : f32[t 8/1], f32[s*2 8/1 3]
%none = zeros %parts {dims="8/1 3"} : f32[s*2 8/1 3]
%y0 %made = selective_scan %u %dt @A %B %B %none %parts : f32[t 8/1], f32[s*2 8/1 3]
%sum = segment_sums %dt %parts : f32[s*2 8/1]
%before %h_new = selective_states %sum %made @A %h %seg : f32[s*2 8/1 3], f32[s 8/1 3]
%y %after = selective_scan %u %dt @A %B %B %before %parts : f32[t 8/1], f32[s*2 8/1 3]
output y = %y
`

// TestRecurrences: a source in which some token's contribution enters a later state never, or
// twice, is refused, though each operation is legal.
func TestRecurrences(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"right":                           {"", "", ""},
		"what parts add is counted twice": {"%made = selective_scan %u %dt @A %B %B %none", "%made = selective_scan %u %dt @A %B %B %tail_again", "y0 begins with tail_again, and not with zeros"},
		"what is left is of other steps":  {"segment_sums %dt", "segment_sums %z", "operand 0 (sum) is not the segment_sums of dt over parts"},
		"what is left is left out":        {"%sum = segment_sums %dt %parts : f32[s*2 8/1]", `%sum = zeros %parts {dims="8/1"} : f32[s*2 8/1]`, "operand 0 (sum) is not the segment_sums of dt over parts"},
		"another rate":                    {"selective_states %sum %made @A ", "selective_states %sum %made @A2 ", "operand 2 is A2; y0 has A"},
		"other tokens":                    {"%y0 %made = selective_scan %u", "%y0 %made = selective_scan %z", "y0 and y must have the same operands but for the state; operand 0 is z and u"},
		"the halo of another convolution": {"%halo %conv_new = conv_states %tail ", "%other = zeros %parts {dims=\"8/1 3\"} : f32[s*2 8/1 3]\n%halo %conv_new = conv_states %other ", "other is not the state after a conv1d"},
		"the scan goes on from nothing":   {"%B %B %before %parts", "%B %B %tail_again %parts", "before must be the state of one selective_scan, and of nothing else"},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := graph.Parse(strings.Replace(overParts, c.old, c.new, 1))
			if err == nil {
				err = graph.Check(g)
			}
			if err != nil {
				t.Fatal(err)
			}
			err = recurrences(g)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v; want %s", err, c.want)
			}
		})
	}
}
