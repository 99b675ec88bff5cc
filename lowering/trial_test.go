package lowering

import (
	"reflect"
	"testing"
)

// ofTrials has every kind of operand that is, and that looks like, a recurrence's.
const ofTrials = `graph "g" stage=model ranks=1
input %x : f32[t 8]
input %w : f32[t 8/8]
input %seg : i32[s 3]
input %past : i32[s]
input %rows : i32[o]
input %choice : f32[o temperature:1|top_k:1|top_p:1|penalty:1|uniform:1|uniform_rest:1]
input %seen : i32[o 1]
param @taps : f32[8 4]
param @rates : f32[8 2]
param @b : f32[2 8]
state %before : f32[s 8 3]
state %h : bf16[s 8 2]
state %keys : f32[s c 8/8]
state %values : f32[s c 8/8]
%c %after = conv1d %x @taps %before %seg
%q = rotary %w %seg %past {dims=4 theta=10000.0}
%a %nk %nv = attention %q %q %q %keys %values %seg %past {scale=1.0}
%n = matmul %c @b
%y %g = selective_scan %c %x @rates %n %n %h %seg
%l = select_rows %y %rows
%t = choose %l %choice %seen
output y = %y
output a = %a
output t = %t
`

// TestRecurrences: steps are recurrences that go along segments, and none that read positions or
// the tokens that a row has seen. Spares and rings are counted by hand.
func TestRecurrences(t *testing.T) {
	s := lower(t, ofTrials)[0]
	got := s.Recurrences()
	for i := range got {
		if op := s.Steps[got[i].Step].Op.Name; op != []string{"conv1d", "selective_scan"}[i] {
			t.Fatalf("step %d is %s", i, op)
		}
		got[i].Step = 0
	}
	want := []Recurrence{{Segments: 3, States: []int{2}, Tokens: []int{0}, Rows: []int{0}}, {Segments: 6, States: []int{5}, Tokens: []int{0, 1, 3, 4}, Rows: []int{0}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// x; u, dt, B and C; and a result, for 16 tokens.
	if n, want := s.TrialBytes(), s.Bytes[State]+16*4*(8+(8+8+2+2)+8); n != want {
		t.Errorf("%d bytes for a trial, want %d", n, want)
	}
}
