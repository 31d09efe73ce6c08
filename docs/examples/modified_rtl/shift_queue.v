// A queue as a shift register: the ports and the behaviour of hw/sequencer/queue.py at depth 4, other internals.
module shift_queue #(parameter DEPTH = 4, parameter WIDTH = 74) (
    input clk, input rst, input clear,
    input i__valid, output i__ready, input [WIDTH-1:0] i__payload,
    output o__valid, input o__ready, output [WIDTH-1:0] o__payload);
  reg [WIDTH-1:0] place [0:DEPTH-1];
  reg [$clog2(DEPTH+1)-1:0] level = 0;
  integer n;

  assign i__ready = level != DEPTH;
  assign o__valid = level != 0;
  assign o__payload = place[0];

  wire push = i__valid && i__ready;
  wire pop = o__valid && o__ready;

  always @(posedge clk) begin
    if (pop)
      for (n = 0; n + 1 < DEPTH; n = n + 1) place[n] <= place[n+1];
    if (push) place[level - pop] <= i__payload;
    level <= rst || clear ? 0 : level + push - pop;
  end
endmodule
