# Synthesises, places and routes dovetail_axi by itself, out of context: whether it fits, and how fast it is.
#
#     vivado -mode batch -source project.tcl
#
# The project is in the folder build beside this file, the reports in reports.
source [file join [file dirname [file normalize [info script]]] settings.tcl]

create_project -force -part $part dovetail [file join $here build project]
add_files -norecurse [list [file join $here dovetail.v] [file join $here dovetail_axi.v]]
add_files -fileset constrs_1 -norecurse [file join $here dovetail_ooc.xdc]
set_property top dovetail_axi [current_fileset]
update_compile_order -fileset sources_1
set_property -name {STEPS.SYNTH_DESIGN.ARGS.MORE OPTIONS} -value {-mode out_of_context} -objects [get_runs synth_1]

launch_runs impl_1 -to_step route_design -jobs 2
wait_on_run impl_1
if {[get_property PROGRESS [get_runs impl_1]] ne "100%"} {
    error "implementation did not come to its end: [get_property STATUS [get_runs impl_1]]"
}
open_run impl_1
set reports [file join $here reports]
file mkdir $reports
report_utilization -hierarchical -file [file join $reports utilization.txt]
report_timing_summary -file [file join $reports timing.txt]
set slack [get_property SLACK [get_timing_paths]]
puts "worst slack: $slack ns of $period ns"
close_project
