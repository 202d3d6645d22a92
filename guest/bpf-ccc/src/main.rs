mod skeleton { include!(concat!(env!("OUT_DIR"), "/ccc.skel.rs")); }
use libbpf_rs::skel::*;
fn main() {
    libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |_, s| eprint!("{s}"))));
    let mut o = std::mem::MaybeUninit::uninit();
    let open = skeleton::CccSkelBuilder::default().open(&mut o).unwrap();
    let mut skel = open.load().unwrap();
    println!("{:?}", skel.maps.rodata_data);
    let l = skel.maps.ccc_reno.attach_struct_ops().unwrap();
    let l2 = skel.maps.ccc_cubic.attach_struct_ops();
    println!("{:?}", l2.is_ok());
    println!("{}", std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap());
    std::thread::sleep(std::time::Duration::from_secs(std::env::args().nth(1).map_or(0, |s| s.parse().unwrap())));
}
