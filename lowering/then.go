package lowering

import "slices"

// Then is the step that a device may run together with collective i of Steps: the one that its
// attribute then names, if only events lie between them and it alone reads the sum. All that the
// step reads is there when the collective begins, which waits for every launch before it, and
// no step reads meanwhile what this one writes.
func (s *Schedule) Then(i int) (k int, ok bool) {
	c := &s.Steps[i]
	name := c.Attrs.Text("then")
	if name == "" || c.Stream != Comm || len(c.Results) != 1 {
		return 0, false
	}
	for k = i + 1; k < len(s.Steps) && (s.Steps[k].Kind == Record || s.Steps[k].Kind == Wait); k++ {
	}
	if k == len(s.Steps) || s.Steps[k].Kind != Launch || s.Steps[k].Op.Name != name || s.Steps[k].Loop != 0 {
		return 0, false
	}
	sum, uses := c.Results[0].Name, 0
	for j := range s.Steps {
		for _, r := range s.Steps[j].Args {
			if r.Name == sum {
				if uses++; j != k {
					return 0, false
				}
			}
		}
	}
	return k, uses == 1 && !slices.ContainsFunc(s.Outputs, func(o Output) bool { return o.Ref.Name == sum })
}
