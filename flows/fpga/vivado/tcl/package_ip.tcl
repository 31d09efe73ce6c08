# Packages dovetail_axi as an IP into the folder ip beside this file.
#
#     vivado -mode batch -source package_ip.tcl
#
# Add that folder to a project's IP repositories (set_property ip_repo_paths); then the block is under "Dovetail".
source [file join [file dirname [file normalize [info script]]] settings.tcl]

create_project -force -part $part dovetail_package [file join $here build package]
add_files -norecurse [list [file join $here dovetail.v] [file join $here dovetail_axi.v]]
add_files -fileset constrs_1 -norecurse [file join $here dovetail_ooc.xdc]
set_property USED_IN {out_of_context synthesis implementation} [get_files dovetail_ooc.xdc]
set_property top dovetail_axi [current_fileset]
update_compile_order -fileset sources_1

ipx::package_project -root_dir [file join $here ip] -vendor dovetail -library user -taxonomy /Dovetail \
    -import_files -set_current true -force
set core [ipx::current_core]
set_property name dovetail $core
set_property version $version $core
set_property display_name "Dovetail" $core
set_property description $description $core
foreach bus {s_axil m_axi} {
    ipx::associate_bus_interfaces -busif $bus -clock aclk $core
}
ipx::create_xgui_files $core
ipx::update_checksums $core
if {[ipx::check_integrity -quiet $core] != 1} {
    error "the packaged IP has errors; see the messages of ipx::check_integrity"
}
ipx::save_core $core
close_project
puts "packaged: [file join $here ip]"
